// Between the ABI's types and MLX's.
#pragma once

#include <mlx/mlx.h>

#include "program.h"

namespace mlxcel {

namespace mx = mlx::core;

mx::Dtype to_mlx(int64_t dtype);

// The dimensions of a type, the first one as the live counts say.
mx::Shape live_shape(const Type& type, const Counts& counts);
mx::Shape shape_of(const Type& type);

// A new array with a copy of host memory: for small things only, since on a GPU it stays host memory.
mx::array from_host(const void* data, mx::Shape shape, mx::Dtype dtype);

}  // namespace mlxcel
