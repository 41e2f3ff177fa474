// AVX2, FMA and F16C.
#include "matmul_vector256.h"

namespace mlxcel::native {
namespace {

struct Avx2 : Vector256 {
  static constexpr int kTile = 4;  // tokens of a tile: 8 sums, as many products, weights and activations need room too
  static constexpr int kChains = 1;  // sums that a matrix-vector product is split into, to hide latency
  static MLXCEL_INLINE Sum dot(Sum sum, Int w, Int x) { return add(sum, (Sum)_mm256_madd_epi16(w, x)); }
};

int largest_of_8(__m256i v) {
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

int sum_of_8(__m256i v) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

float float_of(int bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace

void prepare_integers(const float* x, const Packed& m, void* prepared) {
  char* integers = static_cast<char*>(prepared);
  float* scales = reinterpret_cast<float*>(integers + m.scales_at);
  for (int64_t k = 0; k < m.columns; k += m.group, x += m.group, scales += 2) {
    // Magnitudes are compared as integers, which also orders infinity and NaN above all numbers.
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < m.group; i += 8) {
      __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    int magnitude = largest_of_8(largest);
    constexpr int kInfinity = 0x7f800000, kNan = 0x7fc00000;
    if (magnitude >= kInfinity) {  // makes every product NaN
      std::memset(integers, 0, size_t(m.group) * 2);
      integers += m.group * 2;
      scales[0] = scales[1] = float_of(kNan);
      continue;
    }
    constexpr float kSmallest = 0x1p-126f;  // whose inverse is finite: smaller activations lose bits instead
    float scale = float_of(magnitude) / 32767;
    if (scale < kSmallest) scale = kSmallest;
    __m256 inverse = _mm256_set1_ps(1 / scale);
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < m.group; i += 8, integers += 16) {
      __m256i eight = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
      sum = _mm256_add_epi32(sum, eight);
      __m128i low = _mm256_castsi256_si128(eight), high = _mm_slli_epi32(_mm256_extracti128_si256(eight, 1), 16);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(integers), _mm_blend_epi16(low, high, 0xaa));
    }
    scales[0] = scale;
    scales[1] = scale * float(sum_of_8(sum));
  }
}

const Kernels kAvx2Kernels = {"avx2", prepare_integers, find_kernel<Avx2>, kLanes};

}  // namespace mlxcel::native
