// Packing: from MLX's layout to panels (see matmul_packed.h), and back for embeddings.
#include "matmul_packed.h"

#include <cstring>
#include <string>

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

// Where value k of a span is in words that hold `bits` bits of every value.
struct Place {
  Place(int bits, int64_t k) {
    int64_t pair = k / 8 * 4 + k % 4, per_word = 16 / bits;
    word = pair / per_word;
    shift = pair % per_word * bits + (k & 4) * 4;
  }
  int64_t word, shift;
};

uint32_t get_value(const LaneWords& words, int64_t bits, int64_t k) {
  Planes p = planes(bits);
  Place low(p.low, k);
  uint32_t value = words[low.word] >> low.shift & ((1u << p.low) - 1);
  if (p.high) {
    Place high(p.high, k);
    value |= (words[p.low + high.word] >> high.shift & ((1u << p.high) - 1)) << p.low;
  }
  return value;
}

// Packs 32 values (16 of nvfp4) from a row's words.
void put_span(LaneWords words, const uint32_t* row, int64_t bits, int64_t k, int64_t span) {
  const uint32_t* from = row + k * bits / 32;
  if (bits == 4) {
    for (int64_t i = 0; i < span / 8; i++) words.set(i, from[i]);
  } else if (bits == 8) {
    for (int64_t i = 0; i < span / 4; i += 2) {
      words.set(i, (from[i] & 0xffff) | from[i + 1] << 16);
      words.set(i + 1, from[i] >> 16 | (from[i + 1] & 0xffff0000));
    }
  } else {
    Planes p = planes(bits);
    uint32_t packed[8] = {};
    for (int64_t i = 0; i < span; i++) {
      uint32_t value = packed_at(row, bits, k + i);
      Place low(p.low, i);
      packed[low.word] |= (value & ((1u << p.low) - 1)) << low.shift;
      if (p.high == 0) continue;
      Place high(p.high, i);
      packed[p.low + high.word] |= value >> p.low << high.shift;
    }
    for (int64_t i = 0; i < span * bits / 32; i++) words.set(i, packed[i]);
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
  PackedMatrix(const Kernels& kernels, const MatrixSource& s)
      : kernels_(kernels), dense_(s.mode == MLXSHIM_QUANT_NONE), affine_(s.mode == MLXSHIM_QUANT_AFFINE),
        integers_(!dense_ && s.mode != MLXSHIM_QUANT_MXFP8), mode_(s.mode), bits_(s.bits),
        float_dtype_(dense_ ? s.weight_dtype : s.scale_dtype), float_bytes_(dtype_size(float_dtype_)),
        member_panels_((s.rows + kLanes - 1) / kLanes),
        multiply_(kernels.find(values_of(s), floats_of(float_dtype_))), description_(describe_of(s, kernels)) {
    rows = s.rows, columns = s.columns, members = s.members;
    packed_.columns = columns;
    if (dense_) {
      packed_.panel_bytes = columns * float_bytes_ * kLanes;
    } else {
      packed_.group = s.group;
      values_bytes_ = s.group * bits_ / 8 * kLanes;
      group_bytes_ = values_bytes_ + float_bytes_ * kLanes * (affine_ ? 2 : 1);
      packed_.panel_bytes = columns / s.group * group_bytes_;
    }
    packed_.prepared_bytes = columns * 4;
    if (integers_) {
      packed_.scales_at = columns * 2;
      packed_.prepared_bytes = columns * 2 + columns / s.group * 8;
    }
    packed_.prepared_bytes = (packed_.prepared_bytes + 63) / 64 * 64;
    memory_ = std::make_unique<MatrixMemory>(bytes());
    packed_.data = memory_->data();
    for (int64_t n = 0; n < rows * members; n++) dense_ ? put_dense(s, n) : put_quantized(s, n);
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
    for (int64_t k = 0; k < columns; k += packed_.group, panel += group_bytes_) {
      const uint8_t* scales = panel + values_bytes_;
      for (int64_t i = 0; i < packed_.group; i++) to[k + i] = value(panel, lane, i);
      if (affine_) {
        float scale = float_at(scales, float_dtype_, lane), bias = float_at(scales, float_dtype_, kLanes + lane);
        for (int64_t i = 0; i < packed_.group; i++) to[k + i] = scale * to[k + i] + bias;
      } else {
        float scale = mode_ == MLXSHIM_QUANT_NVFP4 ? e4m3(scales[lane]) : e8m0(scales[lane]);
        for (int64_t i = 0; i < packed_.group; i++) to[k + i] *= scale;
      }
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

  void put_dense(const MatrixSource& s, int64_t n) {
    const char* from = static_cast<const char*>(s.weight) + n * columns * float_bytes_;
    uint8_t* to = panel_of(n) + lane_of(n) * float_bytes_;
    if (float_bytes_ == 2) {
      for (int64_t k = 0; k < columns; k++) std::memcpy(to + k * kLanes * 2, from + k * 2, 2);
    } else {
      for (int64_t k = 0; k < columns; k++) std::memcpy(to + k * kLanes * 4, from + k * 4, 4);
    }
  }

  void put_quantized(const MatrixSource& s, int64_t n) {
    const uint32_t* words = static_cast<const uint32_t*>(s.weight) + n * (columns * bits_ / 32);
    const int64_t groups = columns / s.group, span = s.group < 32 ? s.group : 32;
    const char* scales = static_cast<const char*>(s.scales) + n * groups * float_bytes_;
    const char* biases = affine_ ? static_cast<const char*>(s.biases) + n * groups * float_bytes_ : nullptr;
    uint8_t* to = panel_of(n);
    const int lane = lane_of(n);
    for (int64_t g = 0; g < groups; g++, to += group_bytes_) {
      for (int64_t i = 0; i < s.group; i += span) {
        LaneWords lane_words(to + i * bits_ / 8 * kLanes, lane);
        if (integers_) {
          put_span(lane_words, words, bits_, g * s.group + i, span);
        } else {
          for (int64_t w = 0; w < span / 4; w++) lane_words.set(w, words[(g * s.group + i) / 4 + w]);
        }
      }
      uint8_t* to_scale = to + values_bytes_ + lane * float_bytes_;
      std::memcpy(to_scale, scales + g * float_bytes_, size_t(float_bytes_));
      if (affine_) std::memcpy(to_scale + kLanes * float_bytes_, biases + g * float_bytes_, size_t(float_bytes_));
    }
  }

  // Value i of a group, without its scale.
  float value(uint8_t* group, int lane, int64_t i) const {
    int64_t span = packed_.group < 32 ? packed_.group : 32;
    LaneWords words(group + i / span * span * bits_ / 8 * kLanes, lane);
    if (!integers_) return e4m3(words[i % span / 4] >> i % 4 * 8 & 0xff);
    uint32_t code = get_value(words, bits_, i % span);
    return affine_ ? float(code) : float(e2m1_twice(code)) * 0.5f;
  }

  const Kernels& kernels_;
  const bool dense_, affine_, integers_;
  const int64_t mode_, bits_, float_dtype_, float_bytes_, member_panels_;
  int64_t values_bytes_ = 0, group_bytes_ = 0;  // of a group of a panel: the values alone, and with scales
  const MultiplyKernel multiply_;
  const std::string description_;
  Packed packed_;
  std::unique_ptr<MatrixMemory> memory_;
};

}  // namespace

std::unique_ptr<Matrix> pack_panels(const Kernels& kernels, const MatrixSource& source) {
  return std::make_unique<PackedMatrix>(kernels, source);
}

}  // namespace mlxcel::native
