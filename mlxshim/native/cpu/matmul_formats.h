// The number formats of weights, one value at a time. Kernels decode them in their own ways; these are the meaning.
#pragma once

#include <cstdint>

#include "../../common/convert.h"
#include "../../common/dtype.h"

namespace mlxcel::native {

// fp4: sign, two bits of exponent, one of fraction. Twice the value is an integer.
inline int e2m1_twice(uint32_t code) {
  constexpr int magnitude[] = {0, 1, 2, 3, 4, 6, 8, 12};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

// fp8: sign, four bits of exponent, three of fraction; all ones is NaN. It is a half whose exponent is 8 less.
inline float e4m3(uint32_t code) {
  uint32_t magnitude = code & 0x7f, not_a_number = (magnitude + 1) >> 7;
  return half_to_float(uint16_t((code & 0x80) << 8 | not_a_number << 14 | magnitude << 7)) * 256;
}

// A power of two from 2^-127 on; 255 is infinity, as in MLX.
inline float e8m0(uint32_t code) {
  uint16_t bfloat = code ? uint16_t(code << 7) : 0x40;
  return bfloat_to_float(bfloat);
}

// Element i of an array of f16, bf16 or f32.
inline float float_at(const void* array, int64_t dtype, int64_t i) {
  switch (dtype) {
    case MLXSHIM_DTYPE_F16: return half_to_float(static_cast<const uint16_t*>(array)[i]);
    case MLXSHIM_DTYPE_BF16: return bfloat_to_float(static_cast<const uint16_t*>(array)[i]);
    default: return static_cast<const float*>(array)[i];
  }
}

// Value k of a row of packed ones: bits [k * bits, (k + 1) * bits) of its words.
inline uint32_t packed_at(const uint32_t* row, int64_t bits, int64_t k) {
  int64_t at = k * bits, word = at / 32, shift = at % 32;
  uint64_t pair = row[word];
  if (shift + bits > 32) pair |= uint64_t(row[word + 1]) << 32;
  return uint32_t(pair >> shift) & ((1u << bits) - 1);
}

}  // namespace mlxcel::native
