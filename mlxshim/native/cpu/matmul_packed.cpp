// Packing: from MLX's layout to panels (see matmul_packed.h), and back for embeddings.
#include "matmul_packed.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "matmul_formats.h"
#include "matmul_levels.h"
#include "matmul_memory.h"

namespace mlxcel::native {

namespace {

// Words of a lane, a panel's width apart, beginning with the group's first.
class LaneWords {
 public:
  LaneWords(uint8_t* panel_group, int lane) : at_(panel_group + lane * 4) {}
  uint32_t operator[](int64_t i) const {
    uint32_t word;
    std::memcpy(&word, at_ + i * kLanes * 4, 4);
    return word;
  }
  void set(int64_t i, uint32_t word) { std::memcpy(at_ + i * kLanes * 4, &word, 4); }

 private:
  uint8_t* at_;
};

// How the bits of 32 values are spread: the low `low` bits of each in the first words, the rest in those that follow.
struct Planes {
  int low, high;
};
constexpr Planes planes(int64_t bits) {
  switch (bits) {
    case 3: return {2, 1};
    case 5: return {4, 1};
    case 6: return {4, 2};
    default: return {int(bits), 0};
  }
}

// Where value i of a span is in words that hold `bits` bits of every value.
struct Place {
  constexpr Place(int bits, int i) {
    int pair = i / 8 * 4 + i % 4, per_word = 16 / bits;
    word = pair / per_word;
    shift = pair % per_word * bits + (i & 4) * 4;
  }
  int word, shift;
};

// Packs 32 values (16 of nvfp4) of a row, which begin at a word.
template <int Bits>
void put_span(LaneWords words, const uint32_t* from, int span) {
  if constexpr (Bits == 4) {
    for (int i = 0; i < span / 8; i++) words.set(i, from[i]);
  } else if constexpr (Bits == 8) {
    for (int i = 0; i < 8; i += 2) {
      words.set(i, (from[i] & 0xffff) | from[i + 1] << 16);
      words.set(i + 1, from[i] >> 16 | (from[i + 1] & 0xffff0000));
    }
  } else {
    constexpr Planes p = planes(Bits);
    uint32_t packed[Bits] = {};
    for (int i = 0; i < 32; i++) {
      uint32_t value = packed_at(from, Bits, i);
      Place low(p.low, i);
      packed[low.word] |= (value & ((1u << p.low) - 1)) << low.shift;
      if constexpr (p.high > 0) {
        Place high(p.high, i);
        packed[p.low + high.word] |= value >> p.low << high.shift;
      }
    }
    for (int i = 0; i < Bits; i++) words.set(i, packed[i]);
  }
}

// The other way round.
template <int Bits>
void get_span(LaneWords words, int span, uint32_t* values) {
  constexpr Planes p = planes(Bits);
  for (int i = 0; i < span; i++) {
    Place low(p.low, i);
    values[i] = words[low.word] >> low.shift & ((1u << p.low) - 1);
    if constexpr (p.high > 0) {
      Place high(p.high, i);
      values[i] |= (words[p.low + high.word] >> high.shift & ((1u << p.high) - 1)) << p.low;
    }
  }
}

// Codes of 8 bits that stay as MLX stores them.
void put_bytes(LaneWords words, const uint32_t* from, int span) {
  for (int i = 0; i < span / 4; i++) words.set(i, from[i]);
}
void get_bytes(LaneWords words, int span, uint32_t* values) {
  for (int i = 0; i < span; i++) values[i] = words[i / 4] >> i % 4 * 8 & 0xff;
}

struct SpanCode {
  void (*put)(LaneWords words, const uint32_t* from, int span);
  void (*get)(LaneWords words, int span, uint32_t* values);
};
SpanCode span_code(const MatrixSource& s) {
  if (s.mode == MLXSHIM_QUANT_MXFP8) return {put_bytes, get_bytes};
  switch (s.bits) {
    case 2: return {put_span<2>, get_span<2>};
    case 3: return {put_span<3>, get_span<3>};
    case 4: return {put_span<4>, get_span<4>};
    case 5: return {put_span<5>, get_span<5>};
    case 6: return {put_span<6>, get_span<6>};
    default: return {put_span<8>, get_span<8>};
  }
}

Values values_of(const MatrixSource& s) {
  switch (s.mode) {
    case MLXSHIM_QUANT_NONE: return Values::kDense;
    case MLXSHIM_QUANT_MXFP4: return Values::kMxfp4;
    case MLXSHIM_QUANT_MXFP8: return Values::kMxfp8;
    case MLXSHIM_QUANT_NVFP4: return Values::kNvfp4;
  }
  switch (s.bits) {
    case 2: return Values::kAffine2;
    case 3: return Values::kAffine3;
    case 4: return Values::kAffine4;
    case 5: return Values::kAffine5;
    case 6: return Values::kAffine6;
    default: return Values::kAffine8;
  }
}

Floats floats_of(int64_t dtype) {
  switch (dtype) {
    case MLXSHIM_DTYPE_F16: return Floats::kF16;
    case MLXSHIM_DTYPE_BF16: return Floats::kBf16;
    case MLXSHIM_DTYPE_F32: return Floats::kF32;
    default: return Floats::kU8;
  }
}

std::string describe_of(const MatrixSource& s, const Kernels& kernels) {
  std::string text = s.mode == MLXSHIM_QUANT_NONE     ? "dense"
                     : s.mode == MLXSHIM_QUANT_AFFINE ? "affine " + std::to_string(s.bits) + " bit"
                     : s.mode == MLXSHIM_QUANT_MXFP4  ? "mxfp4"
                     : s.mode == MLXSHIM_QUANT_MXFP8  ? "mxfp8"
                                                      : "nvfp4";
  bool dense = s.mode == MLXSHIM_QUANT_NONE, floats = dense || s.mode == MLXSHIM_QUANT_MXFP8;
  text += dense ? std::string(" ") + dtype_name(s.weight_dtype) : ", group " + std::to_string(s.group);
  return text + ", " + kernels.name + (floats ? " f32" : " int16");
}

class PackedMatrix : public Matrix {
 public:
  PackedMatrix(const Kernels& kernels, const MatrixSource& s, const Spread& spread)
      : kernels_(kernels),
        dense_(s.mode == MLXSHIM_QUANT_NONE),
        affine_(s.mode == MLXSHIM_QUANT_AFFINE),
        integers_(!dense_ && s.mode != MLXSHIM_QUANT_MXFP8),
        mode_(s.mode),
        bits_(s.bits),
        float_dtype_(dense_ ? s.weight_dtype : s.scale_dtype),
        member_panels_((s.rows + kLanes - 1) / kLanes),
        span_(s.group < 32 ? int(s.group) : 32),
        code_(span_code(s)),
        multiply_(kernels.find(values_of(s), floats_of(float_dtype_))),
        description_(describe_of(s, kernels)) {
    rows = s.rows, columns = s.columns, members = s.members;
    packed_.columns = columns;
    packed_.floats = floats_of(float_dtype_);
    packed_.float_bytes = dtype_size(float_dtype_);
    if (dense_) {
      packed_.panel_bytes = columns * packed_.float_bytes * kLanes;
    } else {
      packed_.group = s.group;
      packed_.scale_bytes = packed_.float_bytes * kLanes * (affine_ ? 2 : 1);
      packed_.panel_bytes = columns * bits_ / 8 * kLanes + columns / s.group * packed_.scale_bytes;
    }
    packed_.prepared_bytes = columns * 4;
    if (integers_) {
      packed_.scales_at = columns * 2;
      packed_.prepared_bytes = columns * 2 + columns / s.group * 8;
    }
    packed_.prepared_bytes = (packed_.prepared_bytes + 63) / 64 * 64;
    memory_ = std::make_unique<MatrixMemory>(bytes());
    packed_.data = memory_->data();
    spread(members * member_panels_, [&](int64_t begin, int64_t end) {
      // Some at a time, so that rows which have to be read stay in the processor's cache.
      constexpr int64_t kPiece = 64 << 10;
      const int64_t most = std::max<int64_t>(kPiece / (kLanes * s.weight_bytes()), 1);
      MatrixSource::Buffer buffer;
      for (int64_t panel = begin; panel < end;) {
        const int64_t member = panel / member_panels_, n = panel % member_panels_ * kLanes;
        const int64_t panels = std::min({most, end - panel, member_panels_ - panel % member_panels_});
        const int64_t count = std::min(panels * kLanes, rows - n), first = member * rows + n;
        const MatrixSource::Rows from = s.from(first, count, buffer);
        for (int64_t r = 0; r < count; r += kLanes) {
          const int lanes = int(std::min<int64_t>(count - r, kLanes));
          dense_ ? put_dense(s, from, r, panel_of(first + r), lanes)
                 : put_quantized(s, from, r, panel_of(first + r), lanes);
        }
        panel += panels;
      }
    });
  }

  size_t bytes() const override { return size_t(members * member_panels_ * packed_.panel_bytes); }
  size_t prepared_bytes() const override { return size_t(packed_.prepared_bytes); }

  void prepare(const float* x, int64_t stride, int64_t count, void* prepared) const override {
    for (int64_t t = 0; t < count; t++) {
      void* to = static_cast<char*>(prepared) + t * packed_.prepared_bytes;
      if (integers_) {
        kernels_.prepare(x + t * stride, packed_, to);
      } else {
        std::memcpy(to, x + t * stride, size_t(columns) * sizeof(float));
      }
    }
  }

  void multiply(const void* prepared, int64_t count, int64_t begin, int64_t end, float* y, int64_t y_stride,
                int64_t member) const override {
    if (count > 0 && begin < end)
      multiply_(packed_, prepared, count, member * member_panels_ + begin / kLanes, end - begin, y + begin, y_stride);
  }

  int64_t row_block() const override { return kernels_.row_block; }

  void row(int64_t n, float* to) const override {
    uint8_t* panel = panel_of(n);
    int lane = lane_of(n);
    if (dense_) {
      for (int64_t k = 0; k < columns; k++) to[k] = float_at(panel, float_dtype_, k * kLanes + lane);
      return;
    }
    for (int64_t k = 0; k < columns; k += packed_.group, to += packed_.group) {
      uint32_t codes[128];  // the largest group
      for (int64_t i = 0; i < packed_.group; i += span_, panel += span_ * bits_ / 8 * kLanes)
        code_.get(LaneWords(panel, lane), span_, codes + i);
      const float scale = scale_at(panel, lane), bias = affine_ ? scale_at(panel, kLanes + lane) : 0;
      for (int64_t i = 0; i < packed_.group; i++) to[i] = scale * plain_value(codes[i]) + bias;
      panel += packed_.scale_bytes;
    }
  }

  bool prepared_like(const Matrix& other) const override {
    auto* same = dynamic_cast<const PackedMatrix*>(&other);
    return same && same->columns == columns && same->integers_ == integers_ &&
           (!integers_ || same->packed_.group == packed_.group);
  }

  const char* describe() const override { return description_.c_str(); }

 private:
  // The panel of row n of the stack, and its lane there.
  uint8_t* panel_of(int64_t n) const {
    return memory_->data() + (n / rows * member_panels_ + n % rows / kLanes) * packed_.panel_bytes;
  }
  int lane_of(int64_t n) const { return int(n % rows % kLanes); }

  float scale_at(const uint8_t* scales, int i) const {
    if (affine_) return float_at(scales, float_dtype_, i);
    return mode_ == MLXSHIM_QUANT_NVFP4 ? e4m3(scales[i]) : e8m0(scales[i]);
  }
  // What a code is worth before it is scaled.
  float plain_value(uint32_t code) const {
    if (affine_) return float(code);
    return integers_ ? float(e2m1_twice(code)) * 0.5f : e4m3(code);
  }

  // Puts side by side what is `stride` bytes apart.
  static void put_column(const char* from, int64_t stride, int64_t size, int lanes, uint8_t* to) {
    auto put = [&]<size_t Size>(std::integral_constant<size_t, Size>) {
      for (int lane = 0; lane < lanes; lane++) std::memcpy(to + lane * Size, from + lane * stride, Size);
    };
    switch (size) {
      case 1: return put(std::integral_constant<size_t, 1>());
      case 2: return put(std::integral_constant<size_t, 2>());
      default: return put(std::integral_constant<size_t, 4>());
    }
  }

  // Fills a panel with `lanes` of the rows, from row r of them on.
  void put_dense(const MatrixSource& s, const MatrixSource::Rows& source, int64_t r, uint8_t* to, int lanes) {
    const int64_t size = packed_.float_bytes;
    const char* from = static_cast<const char*>(source.weight) + r * s.weight_bytes();
    for (int64_t k = 0; k < columns; k++, from += size, to += kLanes * size)
      put_column(from, columns * size, size, lanes, to);
  }

  void put_quantized(const MatrixSource& s, const MatrixSource::Rows& source, int64_t r, uint8_t* to, int lanes) {
    const int64_t row_words = columns * bits_ / 32, groups = columns / s.group, size = packed_.float_bytes;
    const uint32_t* words = static_cast<const uint32_t*>(source.weight) + r * row_words;
    const char* scales = static_cast<const char*>(source.scales) + r * groups * size;
    const char* biases = affine_ ? static_cast<const char*>(source.biases) + r * groups * size : nullptr;
    for (int64_t g = 0; g < groups; g++) {
      for (int64_t i = 0; i < s.group; i += span_, to += span_ * bits_ / 8 * kLanes)
        for (int lane = 0; lane < lanes; lane++)
          code_.put(LaneWords(to, lane), words + lane * row_words + (g * s.group + i) * bits_ / 32, span_);
      put_column(scales + g * size, groups * size, size, lanes, to);
      if (affine_) put_column(biases + g * size, groups * size, size, lanes, to + kLanes * size);
      to += packed_.scale_bytes;
    }
  }

  const Kernels& kernels_;
  const bool dense_, affine_, integers_;
  const int64_t mode_, bits_, float_dtype_, member_panels_;
  const int span_;  // values that are packed together
  const SpanCode code_;
  const MultiplyKernel multiply_;
  const std::string description_;
  Packed packed_;
  std::unique_ptr<MatrixMemory> memory_;
};

}  // namespace

std::unique_ptr<Matrix> pack_panels(const Kernels& kernels, const MatrixSource& source, const Spread& spread) {
  return std::make_unique<PackedMatrix>(kernels, source, spread);
}

}  // namespace mlxcel::native
