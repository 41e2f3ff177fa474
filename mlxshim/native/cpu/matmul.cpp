#include "matmul.h"

#include "../../common/dtype.h"
#include "../../common/quant.h"
#include "../../common/status.h"
#include "matmul_levels.h"

namespace mlxcel::native {

namespace {

bool is_kernel_float(int64_t dtype) {
  return dtype == MLXSHIM_DTYPE_F16 || dtype == MLXSHIM_DTYPE_BF16 || dtype == MLXSHIM_DTYPE_F32;
}

void check(const MatrixSource& s) {
  if (s.mode == MLXSHIM_QUANT_NONE) {
    if (!is_kernel_float(s.weight_dtype))
      fail(MLXSHIM_ERR_UNSUPPORTED, "matrices of ", dtype_name(s.weight_dtype), " are not supported: convert to f32");
    return;
  }
  if (!valid_quantization(s.mode, s.bits, s.group) || s.columns % s.group != 0)
    fail(MLXSHIM_ERR_UNSUPPORTED, "no quantization of mode ", s.mode, " with ", s.bits, " bits, group ", s.group,
         " and ", s.columns, " columns");
  bool affine = s.mode == MLXSHIM_QUANT_AFFINE;
  if (affine ? !is_kernel_float(s.scale_dtype) : s.scale_dtype != MLXSHIM_DTYPE_U8)
    fail(MLXSHIM_ERR_UNSUPPORTED, "scales of ", dtype_name(s.scale_dtype), " do not fit quantization mode ", s.mode);
}

}  // namespace

int64_t MatrixSource::weight_bytes() const {
  return mode == MLXSHIM_QUANT_NONE ? columns * dtype_size(weight_dtype) : columns * bits / 8;
}

int64_t MatrixSource::scale_bytes() const {
  return mode == MLXSHIM_QUANT_NONE ? 0 : columns / group * dtype_size(scale_dtype);
}

MatrixSource::Rows MatrixSource::from(int64_t row, int64_t n, Buffer& buffer) const {
  if (read) return read(row, n, buffer);
  auto at = [row](const void* begin, int64_t bytes) {
    return begin ? static_cast<const char*>(begin) + row * bytes : nullptr;
  };
  return {at(weight, weight_bytes()), at(scales, scale_bytes()), at(biases, scale_bytes())};
}

std::unique_ptr<Matrix> pack(Level level, const MatrixSource& source, const Spread& spread) {
  check(source);
  switch (level) {
    case Level::kPortable: return pack_portable(source);
#if defined(__x86_64__) || defined(_M_X64)
    case Level::kAvx2: return pack_panels(kAvx2Kernels, source, spread);
    case Level::kAvxVnni: return pack_panels(kAvxVnniKernels, source, spread);
    case Level::kAvx512: return pack_panels(kAvx512Kernels, source, spread);
#else
    default: break;
#endif
  }
  fail(MLXSHIM_ERR_ARGUMENT, "no kernels of level ", level_name(level), " in this library");
}

}  // namespace mlxcel::native
