// AVX-512: registers of 16 floats. Compiled with those instructions; see vector_kernels.h for what that forbids.
#include <immintrin.h>

#include <cstdint>

namespace mlxcel::native {

namespace {

struct V {
  static constexpr int kWidth = 16;
  __m512 x;
};
constexpr int kScoreColumns = 4;

inline __mmask16 first(int64_t n) { return __mmask16((1u << n) - 1); }

inline V load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V load(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
inline void store(float* p, V v) { _mm512_storeu_ps(p, v.x); }
inline void store(float* p, int64_t n, V v) { _mm512_mask_storeu_ps(p, first(n), v.x); }
inline V set(float x) { return {_mm512_set1_ps(x)}; }
inline V operator+(V a, V b) { return {_mm512_add_ps(a.x, b.x)}; }
inline V operator-(V a, V b) { return {_mm512_sub_ps(a.x, b.x)}; }
inline V operator*(V a, V b) { return {_mm512_mul_ps(a.x, b.x)}; }
inline V operator/(V a, V b) { return {_mm512_div_ps(a.x, b.x)}; }
inline V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
inline V max(V a, V b) { return {_mm512_max_ps(a.x, b.x)}; }
inline V min(V a, V b) { return {_mm512_min_ps(a.x, b.x)}; }
inline V power(V v) {
  return {
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(v.x), _mm512_set1_epi32(127)), 23))};
}
inline V half(V v) {
  const __m512i magic = _mm512_set1_epi32(0x4b400000), n = _mm512_sub_epi32(_mm512_castps_si512(v.x), magic);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_srai_epi32(n, 1), magic))};
}
inline __m256 folded(__m512 v, bool sums) {
  const __m256 low = _mm512_castps512_ps256(v), high = _mm512_extractf32x8_ps(v, 1);
  return sums ? _mm256_add_ps(low, high) : _mm256_max_ps(low, high);
}
inline float sum(V v) {
  const __m256 h = folded(v.x, true);
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}
inline float largest(V v) {
  const __m256 h = folded(v.x, false);
  __m128 a = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  a = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps(a, a, 1)));
}

}  // namespace

}  // namespace mlxcel::native

#include "vector_kernels.h"

namespace mlxcel::native {

const VectorKernels kAvx512Vectors = kTable;

}  // namespace mlxcel::native
