// Quantization modes of the ABI.
#pragma once

#include <cstdint>

#include "mlxshim.h"

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

}  // namespace mlxcel
