// Quantization modes of the ABI.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "program.h"

namespace mlxcel {

// Whether a mode has a format of that many bits and that group.
constexpr bool valid_quantization(int64_t mode, int64_t bits, int64_t group) {
  switch (mode) {
    case MLXSHIM_QUANT_AFFINE:
      return ((bits >= 2 && bits <= 6) || bits == 8) && (group == 32 || group == 64 || group == 128);
    case MLXSHIM_QUANT_MXFP4: return bits == 4 && group == 32;
    case MLXSHIM_QUANT_MXFP8: return bits == 8 && group == 32;
    case MLXSHIM_QUANT_NVFP4: return bits == 4 && group == 16;
    default: return false;
  }
}

// How a matrix is quantized; mode MLXSHIM_QUANT_NONE: not at all.
struct QuantFormat {
  int64_t mode, bits, group;
  auto operator<=>(const QuantFormat&) const = default;
};

// What is wrong with a matrix w [.., N, K], packed along K, and its scales and biases (null: none); empty: nothing.
std::string matrix_fault(const QuantFormat& q, const Type& w, const Type* scales, const Type* biases);

// K of a matrix without faults.
inline int64_t matrix_columns(const QuantFormat& q, const Type& w) {
  return q.mode == MLXSHIM_QUANT_NONE ? w.last() : w.last() * 32 / q.bits;
}

}  // namespace mlxcel
