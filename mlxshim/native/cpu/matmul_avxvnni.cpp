// AVX-VNNI: AVX2 with a dot product in one instruction.
#include "matmul_vector256.h"

namespace mlxcel::native {
namespace {

struct AvxVnni : Vector256 {
  static constexpr int kTile = 6;    // tokens of a tile: 12 sums hide the latency of 5 cycles at two a cycle
  static constexpr int kChains = 2;  // sums that a matrix-vector product is split into, to hide latency
  static MLXCEL_INLINE Sum dot(Sum sum, Int w, Int x) { return (Sum)_mm256_dpwssd_avx_epi32((Int)sum, w, x); }
};

}  // namespace

const Kernels kAvxVnniKernels = {"avxvnni", prepare_integers, find_kernel<AvxVnni>, kLanes};

}  // namespace mlxcel::native
