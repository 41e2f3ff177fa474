// What the levels offer to pack().
#pragma once

#include "matmul.h"
#include "matmul_packed.h"

namespace mlxcel::native {

std::unique_ptr<Matrix> pack_portable(const MatrixSource& source);
std::unique_ptr<Matrix> pack_panels(const Kernels& kernels, const MatrixSource& source, const Spread& spread);

}  // namespace mlxcel::native
