#include "dtype.h"
#include "program.h"

namespace mlxcel {

int64_t Type::elements() const {
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) n *= dims[size_t(i)];
  return n;
}

Type Type::live(const Counts& counts) const {
  Type result = *this;
  if (axis != MLXSHIM_AXIS_FIXED) result.dims[0] = counts.along(axis);
  return result;
}

bool Type::same_shape(const Type& other) const {
  return axis == other.axis && ndim == other.ndim && dims == other.dims;
}

std::string Type::print() const {
  std::string out = dtype_name(dtype);
  out += '[';
  for (int i = 0; i < ndim; i++) {
    if (i) out += ", ";
    if (i == 0 && axis != MLXSHIM_AXIS_FIXED)
      out += axis == MLXSHIM_AXIS_TOKENS ? "T=" : axis == MLXSHIM_AXIS_ROWS ? "R=" : "S=";
    out += std::to_string(dims[size_t(i)]);
  }
  return out + ']';
}

}  // namespace mlxcel
