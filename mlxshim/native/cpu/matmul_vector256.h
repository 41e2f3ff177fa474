// Vectors of 8 lanes, AVX2 with FMA and F16C: all but the dot product, in which two levels differ.
#pragma once

#include <immintrin.h>

#include "matmul_kernels.h"

namespace mlxcel::native {
namespace {

struct Vector256 {
  using Int = __m256i;
  // The same for sums, by the type that GCC's dot product itself has: with another one it keeps every sum twice.
#if defined(_MSC_VER) && !defined(__clang__)
  using Sum = __m256i;
#else
  using Sum = __v8si;
#endif
  using Float = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kPanels = 1;     // panels that a product with several tokens does at once
  static constexpr int kDenseTile = 6;  // tokens of a tile: 12 sums of the 16 registers

  static MLXCEL_INLINE Sum no_sum() { return (Sum)_mm256_setzero_si256(); }
  static MLXCEL_INLINE Int load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  static MLXCEL_INLINE void store(Int* to, Int v) { _mm256_storeu_si256(to, v); }
  static MLXCEL_INLINE void store(float* to, Float v) { _mm256_storeu_ps(to, v); }
  static MLXCEL_INLINE void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
  static MLXCEL_INLINE Int all16(int v) { return _mm256_set1_epi16(short(v)); }
  static MLXCEL_INLINE Float all(float v) { return _mm256_set1_ps(v); }
  // Two 16-bit integers of activations, for all lanes.
  static MLXCEL_INLINE Int pair(const char* from) {
    int pair;
    std::memcpy(&pair, from, 4);
    return _mm256_set1_epi32(pair);
  }

  template <int N>
  static MLXCEL_INLINE Int right(Int v) {
    return _mm256_srli_epi16(v, N);
  }
  template <int N>
  static MLXCEL_INLINE Int left(Int v) {
    return _mm256_slli_epi16(v, N);
  }
  static MLXCEL_INLINE Int both(Int a, Int b) { return _mm256_and_si256(a, b); }
  static MLXCEL_INLINE Int either(Int a, Int b) { return _mm256_or_si256(a, b); }
  static MLXCEL_INLINE Sum add(Sum a, Sum b) { return (Sum)_mm256_add_epi32((Int)a, (Int)b); }
  static MLXCEL_INLINE Float to_float(Sum v) { return _mm256_cvtepi32_ps((Int)v); }
  static MLXCEL_INLINE Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static MLXCEL_INLINE Float fused(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }

  static MLXCEL_INLINE Float from_f16(const uint8_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static MLXCEL_INLINE Float from_bf16(const uint8_t* from) {
    Int wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static MLXCEL_INLINE Float from_f32(const uint8_t* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
  static MLXCEL_INLINE Int load_bytes(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static MLXCEL_INLINE Int byte_of_word(Int v, int byte) {
    return _mm256_and_si256(_mm256_srli_epi32(v, byte * 8), _mm256_set1_epi32(0xff));
  }
  static MLXCEL_INLINE Float from_e8m0(const uint8_t* from) {
    Int exponent = _mm256_slli_epi32(load_bytes(from), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(exponent, _mm256_set1_epi32(0x00400000)));
  }
  // Of a code in every lane: as a half that is 2^8 too small.
  static MLXCEL_INLINE Float from_e4m3(Int code) {
    Int magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
    Int sign = _mm256_slli_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7f), code), 8);
    Int is_nan = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_add_epi32(magnitude, _mm256_set1_epi32(1)), 7), 14);
    Int half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi32(magnitude, 7), sign), is_nan);
    __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return _mm256_mul_ps(_mm256_cvtph_ps(narrow), _mm256_set1_ps(256));
  }
  // Of codes in the upper bytes of 16 bits, the lower ones zero.
  static MLXCEL_INLINE Int e2m1_twice(Int codes) {
    const Int table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(table, codes),
                             8);  // a lower byte becomes table[0], and is shifted out
  }
};

}  // namespace
}  // namespace mlxcel::native
