// AVX-512: F, BW, DQ, VL and VNNI.
#include <immintrin.h>

#include "matmul_kernels.h"

namespace mlxcel::native {
namespace {

struct Avx512 {
  using Int = __m512i;
  // The same for sums, by the type that GCC's dot product itself has: with another one it keeps every sum twice.
#if defined(_MSC_VER) && !defined(__clang__)
  using Sum = __m512i;
#else
  using Sum = __v16si;
#endif
  using Float = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kPanels = 2;  // panels that a product with several tokens does at once
  static constexpr int kTile = 12;   // tokens of a tile: 24 sums of the 32 registers
  static constexpr int kDenseTile = 12;
  static constexpr int kChains = 2;  // sums that a matrix-vector product is split into, to hide latency

  static MLXCEL_INLINE Sum no_sum() { return (Sum)_mm512_setzero_si512(); }
  static MLXCEL_INLINE Int load(const void* from) { return _mm512_loadu_si512(from); }
  static MLXCEL_INLINE void store(Int* to, Int v) { _mm512_storeu_si512(to, v); }
  static MLXCEL_INLINE void store(float* to, Float v) { _mm512_storeu_ps(to, v); }
  static MLXCEL_INLINE void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
  static MLXCEL_INLINE Int all16(int v) { return _mm512_set1_epi16(short(v)); }
  static MLXCEL_INLINE Float all(float v) { return _mm512_set1_ps(v); }
  // Two 16-bit integers of activations, for all lanes.
  static MLXCEL_INLINE Int pair(const char* from) {
    int pair;
    std::memcpy(&pair, from, 4);
    return _mm512_set1_epi32(pair);
  }

  template <int N>
  static MLXCEL_INLINE Int right(Int v) {
    return _mm512_srli_epi16(v, N);
  }
  template <int N>
  static MLXCEL_INLINE Int left(Int v) {
    return _mm512_slli_epi16(v, N);
  }
  static MLXCEL_INLINE Int both(Int a, Int b) { return _mm512_and_si512(a, b); }
  static MLXCEL_INLINE Int either(Int a, Int b) { return _mm512_or_si512(a, b); }
  static MLXCEL_INLINE Sum add(Sum a, Sum b) { return (Sum)_mm512_add_epi32((Int)a, (Int)b); }
  static MLXCEL_INLINE Sum dot(Sum sum, Int w, Int x) { return (Sum)_mm512_dpwssd_epi32((Int)sum, w, x); }
  static MLXCEL_INLINE Float to_float(Sum v) { return _mm512_cvtepi32_ps((Int)v); }
  static MLXCEL_INLINE Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static MLXCEL_INLINE Float fused(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }

  static MLXCEL_INLINE Float from_f16(const uint8_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static MLXCEL_INLINE Float from_bf16(const uint8_t* from) {
    Int wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static MLXCEL_INLINE Float from_f32(const uint8_t* from) { return _mm512_loadu_ps(from); }
  static MLXCEL_INLINE Int load_bytes(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static MLXCEL_INLINE Int byte_of_word(Int v, int byte) {
    return _mm512_and_si512(_mm512_srli_epi32(v, byte * 8), _mm512_set1_epi32(0xff));
  }
  static MLXCEL_INLINE Float from_e8m0(const uint8_t* from) {
    Int exponent = _mm512_slli_epi32(load_bytes(from), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(exponent, _mm512_set1_epi32(0x00400000)));
  }
  // Of a code in every lane: as a half that is 2^8 too small.
  static MLXCEL_INLINE Float from_e4m3(Int code) {
    Int magnitude = _mm512_and_si512(code, _mm512_set1_epi32(0x7f));
    Int sign = _mm512_slli_epi32(_mm512_andnot_si512(_mm512_set1_epi32(0x7f), code), 8);
    Int is_nan = _mm512_slli_epi32(_mm512_srli_epi32(_mm512_add_epi32(magnitude, _mm512_set1_epi32(1)), 7), 14);
    Int half = _mm512_or_si512(_mm512_or_si512(_mm512_slli_epi32(magnitude, 7), sign), is_nan);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(half)), _mm512_set1_ps(256));
  }
  // Of codes in the upper bytes of 16 bits, the lower ones zero.
  static MLXCEL_INLINE Int e2m1_twice(Int codes) {
    const Int table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(table, codes),
                             8);  // a lower byte becomes table[0], and is shifted out
  }
};

}  // namespace

const Kernels kAvx512Kernels = {"avx512", prepare_integers, find_kernel<Avx512>, Avx512::kPanels * kLanes};

}  // namespace mlxcel::native
