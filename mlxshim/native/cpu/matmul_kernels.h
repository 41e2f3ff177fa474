// The kernels of every level, written once over its vectors. A kernel file defines a vector type (see
// matmul_avx512.cpp, matmul_vector256.h) in its own unnamed namespace, so that no code of one instruction set is shared
// with another.
//
// Every y is one chain of operations, per group of k: y += float(sum of i16 * q) * (weight scale * activation scale);
// y += bias * sum of activations. The sum in the group is exact, in any order. Dense: y += w * x, k ascending.
#pragma once

#include <cstring>
#include <utility>

#include "matmul_packed.h"

#if defined(_MSC_VER) && !defined(__clang__)
#define MLXCEL_INLINE __forceinline
#define MLXCEL_INLINE_LAMBDA
#else
#define MLXCEL_INLINE inline __attribute__((always_inline))
#define MLXCEL_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace mlxcel::native {
namespace {

// Bytes that a matrix-vector product fetches ahead: from 1 KB to 5 it went from 85 to 95 % of the memory's bandwidth.
constexpr int64_t kPrefetch = 5120;
constexpr int kTokens = 128;  // that are multiplied with all the matrix's rows before the next ones are

// A number that is part of a type.
template <int N>
struct Constant {
  static constexpr int value = N;
  constexpr operator int() const { return N; }
};

// Calls f with the constants 0 .. N-1. Arrays that are indexed with these live in registers; those of a loop, which a
// compiler unrolls too late, would live in memory.
template <class F, int... I>
MLXCEL_INLINE void repeat_each(F f, std::integer_sequence<int, I...>) {
  (f(Constant<I>{}), ...);
}
template <int N, class F>
MLXCEL_INLINE void repeat(F f) {
  repeat_each(f, std::make_integer_sequence<int, N>{});
}

// ---- Floats as they were stored, for one vector of lanes ----

struct F16 {
  static constexpr int kBytes = 2;
  template <class V>
  static MLXCEL_INLINE typename V::Float load(const uint8_t* from) {
    return V::from_f16(from);
  }
};
struct Bf16 {
  static constexpr int kBytes = 2;
  template <class V>
  static MLXCEL_INLINE typename V::Float load(const uint8_t* from) {
    return V::from_bf16(from);
  }
};
struct F32 {
  static constexpr int kBytes = 4;
  template <class V>
  static MLXCEL_INLINE typename V::Float load(const uint8_t* from) {
    return V::from_f32(from);
  }
};

// ---- Integer formats: pairs of values as 16-bit integers, and scales ----

// Pair P out of words that hold Bits bits of every value.
template <class V, int Bits, int P>
MLXCEL_INLINE typename V::Int plane(const uint8_t* words) {
  constexpr int kPerWord = 16 / Bits, kShift = P % kPerWord * Bits;
  typename V::Int word = V::load(words + P / kPerWord * kLanes * 4);
  if constexpr (kShift > 0) word = V::template right<kShift>(word);
  if constexpr (kShift + Bits < 16) word = V::both(word, V::all16((1 << Bits) - 1));
  return word;
}

template <int Bits>
struct Affine {
  static constexpr int kSpan = 32, kBits = Bits;  // kSpan values are unpacked together
  static constexpr bool kBiased = true;

  template <class V, int P>
  static MLXCEL_INLINE typename V::Int pair(const uint8_t* words) {
    if constexpr (Bits == 3 || Bits == 5 || Bits == 6) {
      constexpr int kLow = Bits == 3 ? 2 : 4;
      constexpr int kLowBytes = kLow * kLanes * 4;
      typename V::Int high = plane<V, Bits - kLow, P>(words + kLowBytes);
      return V::either(plane<V, kLow, P>(words), V::template left<kLow>(high));
    } else {
      return plane<V, Bits, P>(words);
    }
  }
  // The lanes of vector v out of 16 scales, and out of 16 biases. Their type is looked up for every group: a branch
  // that always goes the same way.
  template <class V>
  static MLXCEL_INLINE typename V::Float scale(const Packed& m, const uint8_t* scales, int v) {
    const uint8_t* from = scales + v * V::kWidth * m.float_bytes;
    if (m.floats == Floats::kF16) return V::from_f16(from);
    return m.floats == Floats::kBf16 ? V::from_bf16(from) : V::from_f32(from);
  }
  template <class V>
  static MLXCEL_INLINE typename V::Float bias(const Packed& m, const uint8_t* scales, int v) {
    return scale<V>(m, scales + kLanes * m.float_bytes, v);
  }
};

template <int Group>
struct Fp4 {
  static constexpr int kSpan = Group, kBits = 4;
  static constexpr bool kBiased = false;

  template <class V, int P>
  static MLXCEL_INLINE typename V::Int pair(const uint8_t* words) {
    // The code goes to the upper byte of 16 bits, to be replaced by its value there and shifted down with its sign.
    constexpr int kShift = P % 4 * 4;
    typename V::Int code = V::load(words + P / 4 * kLanes * 4);
    if constexpr (kShift < 8) code = V::template left<8 - kShift>(code);
    if constexpr (kShift > 8) code = V::template right<kShift - 8>(code);
    return V::e2m1_twice(V::both(code, V::all16(0x0f00)));
  }
  // Half of what is stored, since values are kept doubled.
  template <class V>
  static MLXCEL_INLINE typename V::Float scale(const Packed&, const uint8_t* scales, int v) {
    const uint8_t* from = scales + v * V::kWidth;
    return V::multiply(Group == 32 ? V::from_e8m0(from) : V::from_e4m3(V::load_bytes(from)), V::all(0.5f));
  }
  template <class V>
  static MLXCEL_INLINE typename V::Float bias(const Packed&, const uint8_t*, int) {
    return V::all(0);
  }
};

// What a group adds to y.
template <class V, bool Biased>
MLXCEL_INLINE typename V::Float add_group(typename V::Float y, typename V::Sum sum, typename V::Float scale,
                                          typename V::Float bias, const float* x_scale_and_sum) {
  y = V::fused(V::to_float(sum), V::multiply(scale, V::all(x_scale_and_sum[0])), y);
  if constexpr (Biased) y = V::fused(bias, V::all(x_scale_and_sum[1]), y);
  return y;
}

// Stores a panel's results of one token, the first `rows` of them.
MLXCEL_INLINE void store_rows(const float* panel, int64_t rows, float* y) {
  if (rows >= kLanes) {
    std::memcpy(y, panel, kLanes * sizeof(float));
  } else {
    for (int64_t i = 0; i < rows; i++) y[i] = panel[i];
  }
}

// ---- One row of activations ----

template <class V, class Format, int... P>
MLXCEL_INLINE void dot_span(typename V::Sum (&sums)[kLanes / V::kWidth][V::kChains], const uint8_t* words,
                            const char* x, std::integer_sequence<int, P...>) {
  auto step = [&]<int p>(Constant<p>) MLXCEL_INLINE_LAMBDA {
    typename V::Int pair_x = V::pair(x + p * 4);
    repeat<kLanes / V::kWidth>([&](auto v) MLXCEL_INLINE_LAMBDA {
      typename V::Sum& sum = sums[v][p % V::kChains];
      sum = V::dot(sum, Format::template pair<V, p>(words + v * V::kWidth * 4), pair_x);
    });
  };
  (step(Constant<P>{}), ...);
}

template <class V, class Format>
void multiply_vector(const Packed& m, const char* x, int64_t panel, int64_t rows, float* y) {
  constexpr int kParts = kLanes / V::kWidth;
  constexpr int kSpanBytes = Format::kSpan * Format::kBits / 8 * kLanes;
  const uint8_t* at = m.data + panel * m.panel_bytes;
  const float* x_scales_begin = reinterpret_cast<const float*>(x + m.scales_at);
  for (; rows > 0; rows -= kLanes, y += kLanes) {
    typename V::Float acc[kParts];
    repeat<kParts>([&](auto v) MLXCEL_INLINE_LAMBDA { acc[v] = V::all(0); });
    const float* x_scales = x_scales_begin;
    const char* integers = x;
    for (int64_t k = 0; k < m.columns; k += m.group) {
      typename V::Sum sums[kParts][V::kChains];
      repeat<kParts>([&](auto v) MLXCEL_INLINE_LAMBDA {
        repeat<V::kChains>([&](auto c) MLXCEL_INLINE_LAMBDA { sums[v][c] = V::no_sum(); });
      });
      for (int64_t i = 0; i < m.group; i += Format::kSpan) {
        repeat<kSpanBytes / 64>([&](auto line) MLXCEL_INLINE_LAMBDA { V::prefetch(at + kPrefetch + line * 64); });
        dot_span<V, Format>(sums, at, integers, std::make_integer_sequence<int, Format::kSpan / 2>{});
        at += kSpanBytes;
        integers += Format::kSpan * 2;
      }
      V::prefetch(at + kPrefetch);
      repeat<kParts>([&](auto v) MLXCEL_INLINE_LAMBDA {
        typename V::Sum sum = sums[v][0];
        if constexpr (V::kChains == 2) sum = V::add(sum, sums[v][1]);
        acc[v] = add_group<V, Format::kBiased>(acc[v], sum, Format::template scale<V>(m, at, v),
                                               Format::template bias<V>(m, at, v), x_scales);
      });
      at += m.scale_bytes;
      x_scales += 2;
    }
    alignas(64) float panel_y[kLanes];
    repeat<kParts>([&](auto v) MLXCEL_INLINE_LAMBDA { V::store(panel_y + v * V::kWidth, acc[v]); });
    store_rows(panel_y, rows, y);
  }
}

// ---- Several rows of activations ----
//
// A few panels are unpacked for a piece of k, which stays in the first cache, and multiplied with a tile of tokens at a
// time: the sums of kTile tokens and all vectors of lanes are held in registers.

// Unpacked panels.
template <class V>
struct Piece {
  static constexpr int kVectors = V::kPanels * kLanes / V::kWidth;
  static constexpr int kColumns = 256, kGroups = kColumns / 16;

  typename V::Int pairs[kColumns / 2][kVectors];
  typename V::Float scales[kGroups][kVectors], biases[kGroups][kVectors];
};

template <class V, class Format, int... P>
MLXCEL_INLINE void unpack_span(typename V::Int (*to)[Piece<V>::kVectors], const uint8_t* words,
                               std::integer_sequence<int, P...>) {
  (V::store(&to[P][0], Format::template pair<V, P>(words)), ...);
}

// Unpacks `groups` groups of one panel into the vectors of a piece from `first` on, and fetches what the next piece
// will be made of, `next` bytes ahead.
template <class V, class Format>
void unpack(Piece<V>& piece, int first, const Packed& m, const uint8_t* at, int64_t groups, int64_t next) {
  constexpr int kSpanBytes = Format::kSpan * Format::kBits / 8 * kLanes;
  int64_t pair = 0;
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t i = 0; i < m.group; i += Format::kSpan) {
      repeat<kSpanBytes / 64>([&](auto line) MLXCEL_INLINE_LAMBDA { V::prefetch(at + next + line * 64); });
      repeat<kLanes / V::kWidth>([&](auto v) MLXCEL_INLINE_LAMBDA {
        auto* to = reinterpret_cast<typename V::Int(*)[Piece<V>::kVectors]>(&piece.pairs[pair][first + v]);
        unpack_span<V, Format>(to, at + v * V::kWidth * 4, std::make_integer_sequence<int, Format::kSpan / 2>{});
      });
      at += kSpanBytes;
      pair += Format::kSpan / 2;
    }
    for (int v = 0; v < kLanes / V::kWidth; v++) {
      piece.scales[g][first + v] = Format::template scale<V>(m, at, v);
      piece.biases[g][first + v] = Format::template bias<V>(m, at, v);
    }
    at += m.scale_bytes;
  }
}

// Adds the products of a piece with T tokens to acc. x is the first token's integers, x_scales its scales, both from
// the piece's first k on.
template <class V, bool Biased, int T>
void multiply_tile(const Piece<V>& piece, int64_t group, int64_t groups, const char* x, const char* x_scales,
                   int64_t stride, typename V::Float (*acc)[Piece<V>::kVectors]) {
  constexpr int kVectors = Piece<V>::kVectors;
  const typename V::Int(*w)[kVectors] = piece.pairs;
  for (int64_t g = 0; g < groups; g++) {
    typename V::Sum sums[T][kVectors];
    repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
      repeat<kVectors>([&](auto v) MLXCEL_INLINE_LAMBDA { sums[t][v] = V::no_sum(); });
    });
    // Tokens are reached from every third one: more addresses would not fit the registers.
    const char* third[(T + 2) / 3];
    repeat<(T + 2) / 3>([&](auto i) MLXCEL_INLINE_LAMBDA { third[i] = x + i * 3 * stride; });
    const char* end = x + group * 2;
    do {
      typename V::Int pair_w[kVectors];
      repeat<kVectors>([&](auto v) MLXCEL_INLINE_LAMBDA { pair_w[v] = V::load(&w[0][v]); });
      repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
        typename V::Int pair_x = V::pair(third[t / 3] + t % 3 * stride);
        repeat<kVectors>([&](auto v) MLXCEL_INLINE_LAMBDA { sums[t][v] = V::dot(sums[t][v], pair_w[v], pair_x); });
      });
      repeat<(T + 2) / 3>([&](auto i) MLXCEL_INLINE_LAMBDA { third[i] += 4; });
      w++;
    } while (third[0] != end);
    x += group * 2;
    repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
      const float* x_scale_and_sum = reinterpret_cast<const float*>(x_scales + t * stride) + 2 * g;
      repeat<kVectors>([&](auto v) MLXCEL_INLINE_LAMBDA {
        acc[t][v] =
            add_group<V, Biased>(acc[t][v], sums[t][v], piece.scales[g][v], piece.biases[g][v], x_scale_and_sum);
      });
    });
  }
}

// Calls f with the number of tokens, as a constant, of the largest tile that `left` tokens fill.
template <int Largest, class F>
MLXCEL_INLINE int64_t largest_tile(int64_t left, F f) {
  if (left >= Largest) return f(Constant<Largest>{}), Largest;
  if constexpr (Largest > 8)
    if (left >= 8) return f(Constant<8>{}), 8;
  if constexpr (Largest > 4)
    if (left >= 4) return f(Constant<4>{}), 4;
  if (left >= 2) return f(Constant<2>{}), 2;
  return f(Constant<1>{}), 1;
}

template <class V, class Format>
void multiply_tokens(const Packed& m, const char* x, int64_t count, int64_t panel, int64_t rows, float* y,
                     int64_t y_stride) {
  constexpr int kVectors = Piece<V>::kVectors, kParts = kLanes / V::kWidth;
  Piece<V> piece;
  typename V::Float acc[kTokens][kVectors];
  int64_t groups = m.columns / m.group, piece_groups = Piece<V>::kColumns / m.group;
  int64_t group_bytes = m.panel_bytes / groups;
  for (; rows > 0; rows -= V::kPanels * kLanes, panel += V::kPanels, y += V::kPanels * kLanes) {
    for (int64_t t = 0; t < count; t++) {
      repeat<kVectors>([&](auto v) MLXCEL_INLINE_LAMBDA { acc[t][v] = V::all(0); });
    }
    for (int64_t g = 0; g < groups; g += piece_groups) {
      int64_t some = groups - g < piece_groups ? groups - g : piece_groups;
      for (int p = 0; p < V::kPanels; p++) {
        // Past the last panel of the range the first one is computed again, for nothing.
        int64_t from = rows > p * kLanes ? panel + p : panel;
        unpack<V, Format>(piece, p * kParts, m, m.data + from * m.panel_bytes + g * group_bytes, some,
                          piece_groups * group_bytes);
      }
      for (int64_t t = 0; t < count;) {
        const char* x_t = x + t * m.prepared_bytes;
        t += largest_tile<V::kTile>(count - t, [&](auto tile) {
          multiply_tile<V, Format::kBiased, decltype(tile)::value>(
              piece, m.group, some, x_t + g * m.group * 2, x_t + m.scales_at + g * 8, m.prepared_bytes, acc + t);
        });
      }
    }
    for (int64_t t = 0; t < count; t++)
      for (int p = 0; p < V::kPanels; p++)
        store_rows(reinterpret_cast<const float*>(&acc[t][p * kParts]), rows - p * kLanes,
                   y + t * y_stride + p * kLanes);
  }
}

template <class V, class Format>
void multiply_integers(const Packed& m, const void* prepared, int64_t count, int64_t panel, int64_t rows, float* y,
                       int64_t y_stride) {
  const char* x = static_cast<const char*>(prepared);
  if (count == 1) return multiply_vector<V, Format>(m, x, panel, rows, y);
  for (int64_t t = 0; t < count; t += kTokens)
    multiply_tokens<V, Format>(m, x + t * m.prepared_bytes, count - t < kTokens ? count - t : kTokens, panel, rows,
                               y + t * y_stride, y_stride);
}

// ---- f32 activations: dense weights and mxfp8 ----

// Weights of one vector of lanes, in blocks of k that share something.
template <class Weight>
struct Dense {
  static constexpr int kBlock = 1, kBlockBytes = Weight::kBytes * kLanes;
  template <class V>
  struct Block {
    const uint8_t* at;
    MLXCEL_INLINE Block(const uint8_t* block, int v) : at(block + v * V::kWidth * Weight::kBytes) {}
    template <int>
    MLXCEL_INLINE typename V::Float value() const {
      return Weight::template load<V>(at);
    }
  };
};

struct Mxfp8 {
  static constexpr int kBlock = 32, kBlockBytes = (32 + 1) * kLanes;
  template <class V>
  struct Block {
    const uint8_t* words;
    typename V::Float scale;
    MLXCEL_INLINE Block(const uint8_t* block, int v)
        : words(block + v * V::kWidth * 4), scale(V::from_e8m0(block + 32 * kLanes + v * V::kWidth)) {}
    template <int K>
    MLXCEL_INLINE typename V::Float value() const {
      typename V::Int code = V::byte_of_word(V::load(words + K / 4 * kLanes * 4), K % 4);
      return V::multiply(V::from_e4m3(code), scale);
    }
  };
};

template <class V, class Format, int T, int Panels, int... K>
MLXCEL_INLINE void add_block(typename V::Float (&acc)[T][Panels * (kLanes / V::kWidth)],
                             const uint8_t* const (&at)[Panels], const char* x, int64_t stride,
                             std::integer_sequence<int, K...>) {
  constexpr int kParts = kLanes / V::kWidth;
  using Block = typename Format::template Block<V>;
  auto step = [&]<int k>(Constant<k>) MLXCEL_INLINE_LAMBDA {
    typename V::Float w[Panels * kParts];
    repeat<Panels * kParts>([&](auto i)
                                MLXCEL_INLINE_LAMBDA { w[i] = Block(at[i / kParts], i % kParts).template value<k>(); });
    repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
      typename V::Float x_k = V::all(reinterpret_cast<const float*>(x + t * stride)[k]);
      repeat<Panels * kParts>([&](auto i) MLXCEL_INLINE_LAMBDA { acc[t][i] = V::fused(w[i], x_k, acc[t][i]); });
    });
  };
  (step(Constant<K>{}), ...);
}

template <class V, class Format, int T, int Panels>
void multiply_dense_tile(const Packed& m, const char* x, int64_t panel, int64_t rows, float* y, int64_t y_stride) {
  constexpr int kParts = kLanes / V::kWidth;
  const uint8_t* at[Panels];
  for (int p = 0; p < Panels; p++) at[p] = m.data + (rows > p * kLanes ? panel + p : panel) * m.panel_bytes;
  typename V::Float acc[T][Panels * kParts];
  repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
    repeat<Panels * kParts>([&](auto i) MLXCEL_INLINE_LAMBDA { acc[t][i] = V::all(0); });
  });
  for (int64_t k = 0; k < m.columns; k += Format::kBlock) {
    add_block<V, Format, T, Panels>(acc, at, x, m.prepared_bytes, std::make_integer_sequence<int, Format::kBlock>{});
    repeat<Panels>([&](auto p) MLXCEL_INLINE_LAMBDA {
      if constexpr (T == 1) V::prefetch(at[p] + kPrefetch);
      at[p] += Format::kBlockBytes;
    });
    x += Format::kBlock * 4;
  }
  alignas(64) float panel_y[kLanes];
  repeat<T>([&](auto t) MLXCEL_INLINE_LAMBDA {
    repeat<Panels>([&](auto p) MLXCEL_INLINE_LAMBDA {
      repeat<kParts>([&](auto v) MLXCEL_INLINE_LAMBDA { V::store(panel_y + v * V::kWidth, acc[t][p * kParts + v]); });
      store_rows(panel_y, rows - p * kLanes, y + t * y_stride + p * kLanes);
    });
  });
}

template <class V, class Format>
void multiply_floats(const Packed& m, const void* prepared, int64_t count, int64_t panel, int64_t rows, float* y,
                     int64_t y_stride) {
  const char* x = static_cast<const char*>(prepared);
  if (count == 1) {
    constexpr int kPanels = 4;  // independent chains of additions
    for (; rows > 0; rows -= kPanels * kLanes, panel += kPanels, y += kPanels * kLanes)
      multiply_dense_tile<V, Format, 1, kPanels>(m, x, panel, rows, y, y_stride);
    return;
  }
  for (int64_t first = 0; first < count; first += kTokens) {
    int64_t end = count - first < kTokens ? count : first + kTokens;
    for (int64_t done = 0; done < rows; done += V::kPanels * kLanes)
      for (int64_t t = first; t < end;)
        t += largest_tile<V::kDenseTile>(end - t, [&](auto tile) {
          multiply_dense_tile<V, Format, decltype(tile)::value, V::kPanels>(
              m, x + t * m.prepared_bytes, panel + done / kLanes, rows - done, y + t * y_stride + done, y_stride);
        });
  }
}

// ---- The table ----

template <class V>
MultiplyKernel find_kernel(Values values, Floats floats) {
  switch (values) {
    case Values::kAffine2: return multiply_integers<V, Affine<2>>;
    case Values::kAffine3: return multiply_integers<V, Affine<3>>;
    case Values::kAffine4: return multiply_integers<V, Affine<4>>;
    case Values::kAffine5: return multiply_integers<V, Affine<5>>;
    case Values::kAffine6: return multiply_integers<V, Affine<6>>;
    case Values::kAffine8: return multiply_integers<V, Affine<8>>;
    case Values::kMxfp4: return multiply_integers<V, Fp4<32>>;
    case Values::kNvfp4: return multiply_integers<V, Fp4<16>>;
    case Values::kMxfp8: return multiply_floats<V, Mxfp8>;
    case Values::kDense: break;
  }
  switch (floats) {
    case Floats::kF16: return multiply_floats<V, Dense<F16>>;
    case Floats::kBf16: return multiply_floats<V, Dense<Bf16>>;
    case Floats::kF32: return multiply_floats<V, Dense<F32>>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace mlxcel::native
