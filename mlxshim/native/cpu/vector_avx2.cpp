// AVX2 with FMA: registers of 8 floats. Compiled with those instructions; see vector_kernels.h for what that forbids.
#include <immintrin.h>

#include <cstdint>

namespace mlxcel::native {

namespace {

struct V {
  static constexpr int kWidth = 8;
  __m256 x;
};
constexpr int kScoreColumns = 2;

alignas(32) constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
inline __m256i first(int64_t n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n)); }

inline V load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline V load(const float* p, int64_t n) { return {_mm256_maskload_ps(p, first(n))}; }
inline void store(float* p, V v) { _mm256_storeu_ps(p, v.x); }
inline void store(float* p, int64_t n, V v) { _mm256_maskstore_ps(p, first(n), v.x); }
inline V set(float x) { return {_mm256_set1_ps(x)}; }
inline V operator+(V a, V b) { return {_mm256_add_ps(a.x, b.x)}; }
inline V operator-(V a, V b) { return {_mm256_sub_ps(a.x, b.x)}; }
inline V operator*(V a, V b) { return {_mm256_mul_ps(a.x, b.x)}; }
inline V operator/(V a, V b) { return {_mm256_div_ps(a.x, b.x)}; }
inline V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.x, b.x, c.x)}; }
inline V max(V a, V b) { return {_mm256_max_ps(a.x, b.x)}; }
inline V min(V a, V b) { return {_mm256_min_ps(a.x, b.x)}; }
inline V power(V v) {
  return {
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(v.x), _mm256_set1_epi32(127)), 23))};
}
inline V half(V v) {
  const __m256i magic = _mm256_set1_epi32(0x4b400000), n = _mm256_sub_epi32(_mm256_castps_si256(v.x), magic);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_srai_epi32(n, 1), magic))};
}
inline float sum(V v) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(v.x), _mm256_extractf128_ps(v.x, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}
inline float largest(V v) {
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(v.x), _mm256_extractf128_ps(v.x, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}

}  // namespace

}  // namespace mlxcel::native

#include "vector_kernels.h"

namespace mlxcel::native {

const VectorKernels kAvx2Vectors = kTable;

}  // namespace mlxcel::native
