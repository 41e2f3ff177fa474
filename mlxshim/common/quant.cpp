#include "quant.h"

#include "dtype.h"
#include "status.h"

namespace mlxcel {

std::string matrix_fault(const QuantFormat& q, const Type& w, const Type* scales, const Type* biases) {
  if (q.mode == MLXSHIM_QUANT_NONE) {
    if (!is_float(w.dtype)) return text("w is ", w.print(), ", not of floats");
    return scales || biases ? "scales of a weight that is not quantized" : "";
  }
  if (!valid_quantization(q.mode, q.bits, q.group))
    return text("no quantization has mode ", q.mode, ", ", q.bits, " bits and groups of ", q.group);
  if (w.dtype != MLXSHIM_DTYPE_U32) return text("w is ", w.print(), ", not of u32");
  if (w.last() * 32 % q.bits != 0 || w.last() * 32 / q.bits % q.group != 0)
    return text("w is ", w.print(), ", which holds no whole groups");
  Type fitting = w;
  fitting.dims[size_t(w.ndim - 1)] = matrix_columns(q, w) / q.group;
  if (!scales) return "scales are missing";
  if (!scales->same_shape(fitting)) return text("scales are ", scales->print(), " for w ", w.print());
  if (q.mode != MLXSHIM_QUANT_AFFINE) {
    if (scales->dtype != MLXSHIM_DTYPE_U8) return text("scales are ", scales->print(), ", not of u8");
    return biases ? "biases of a format that has none" : "";
  }
  if (!is_float(scales->dtype)) return text("scales is ", scales->print(), ", not of floats");
  if (!biases) return "biases are missing";
  return *biases == *scales ? "" : text("biases are ", biases->print(), ", scales ", scales->print());
}

}  // namespace mlxcel
