#include "vector.h"

namespace mlxcel::native {

const VectorKernels& vector_kernels(Level level) {
  switch (level) {
#if defined(__x86_64__) || defined(_M_X64)
    case Level::kAvx2:
    case Level::kAvxVnni: return kAvx2Vectors;
    case Level::kAvx512: return kAvx512Vectors;
#endif
    default: return kPortableVectors;
  }
}

}  // namespace mlxcel::native
