// Element types of the ABI.
#pragma once

#include <cstdint>

#include "mlxshim.h"

namespace mlxcel {

// Bytes of an element; 0 where the number is no dtype.
constexpr int64_t dtype_size(int64_t dtype) {
  switch (dtype) {
    case MLXSHIM_DTYPE_BOOL:
    case MLXSHIM_DTYPE_U8:
    case MLXSHIM_DTYPE_I8: return 1;
    case MLXSHIM_DTYPE_U16:
    case MLXSHIM_DTYPE_I16:
    case MLXSHIM_DTYPE_F16:
    case MLXSHIM_DTYPE_BF16: return 2;
    case MLXSHIM_DTYPE_U32:
    case MLXSHIM_DTYPE_I32:
    case MLXSHIM_DTYPE_F32: return 4;
    case MLXSHIM_DTYPE_U64:
    case MLXSHIM_DTYPE_I64:
    case MLXSHIM_DTYPE_F64: return 8;
    default: return 0;
  }
}

constexpr bool is_float(int64_t dtype) {
  return dtype == MLXSHIM_DTYPE_F16 || dtype == MLXSHIM_DTYPE_BF16 || dtype == MLXSHIM_DTYPE_F32 ||
         dtype == MLXSHIM_DTYPE_F64;
}

constexpr const char* dtype_name(int64_t dtype) {
  constexpr const char* names[] = {"?",   "bool", "u8",  "i8",  "u16",  "i16", "u32",
                                   "i32", "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return dtype_size(dtype) ? names[dtype] : "?";
}

}  // namespace mlxcel
