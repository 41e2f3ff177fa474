#include "convert.h"

#include <cstring>

#include "status.h"

namespace mlxcel {

mx::Dtype to_mlx(int64_t dtype) {
  switch (dtype) {
    case MLXSHIM_DTYPE_BOOL: return mx::bool_;
    case MLXSHIM_DTYPE_U8: return mx::uint8;
    case MLXSHIM_DTYPE_I8: return mx::int8;
    case MLXSHIM_DTYPE_U16: return mx::uint16;
    case MLXSHIM_DTYPE_I16: return mx::int16;
    case MLXSHIM_DTYPE_U32: return mx::uint32;
    case MLXSHIM_DTYPE_I32: return mx::int32;
    case MLXSHIM_DTYPE_U64: return mx::uint64;
    case MLXSHIM_DTYPE_I64: return mx::int64;
    case MLXSHIM_DTYPE_F16: return mx::float16;
    case MLXSHIM_DTYPE_BF16: return mx::bfloat16;
    case MLXSHIM_DTYPE_F32: return mx::float32;
    case MLXSHIM_DTYPE_F64: return mx::float64;
  }
  fail(MLXSHIM_ERR_INTERNAL, "no dtype ", dtype);
}

mx::Shape shape_of(const Type& type) {
  mx::Shape shape;
  for (int i = 0; i < type.ndim; i++) shape.push_back(int32_t(type.dims[size_t(i)]));
  return shape;
}

mx::Shape live_shape(const Type& type, const Counts& counts) { return shape_of(type.live(counts)); }

mx::array from_host(const void* data, mx::Shape shape, mx::Dtype dtype) {
  size_t bytes = mx::size_of(dtype);
  for (auto dim : shape) bytes *= size_t(dim);
  auto buffer = mx::allocator::malloc(bytes);
  if (bytes > 0) std::memcpy(buffer.buffer().raw_ptr(), data, bytes);
  return mx::array(std::move(buffer), std::move(shape), dtype);
}

}  // namespace mlxcel
