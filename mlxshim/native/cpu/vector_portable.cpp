// A register is one float: the reference of the other levels.
#include <bit>
#include <cmath>
#include <cstdint>

namespace mlxcel::native {

namespace {

struct V {
  static constexpr int kWidth = 1;
  float x;
};
constexpr int kScoreColumns = 16;

inline V load(const float* p) { return {*p}; }
inline V load(const float* p, int64_t) { return {*p}; }
inline void store(float* p, V v) { *p = v.x; }
inline void store(float* p, int64_t, V v) { *p = v.x; }
inline V set(float x) { return {x}; }
inline V operator+(V a, V b) { return {a.x + b.x}; }
inline V operator-(V a, V b) { return {a.x - b.x}; }
inline V operator*(V a, V b) { return {a.x * b.x}; }
inline V operator/(V a, V b) { return {a.x / b.x}; }
inline V fma(V a, V b, V c) { return {a.x * b.x + c.x}; }
inline V max(V a, V b) { return {a.x > b.x ? a.x : b.x}; }
inline V min(V a, V b) { return {a.x < b.x ? a.x : b.x}; }
inline V power(V v) { return {std::bit_cast<float>((std::bit_cast<uint32_t>(v.x) + 127) << 23)}; }
inline V half(V v) {
  const int32_t n = int32_t(std::bit_cast<uint32_t>(v.x) - 0x4b400000u);
  return {std::bit_cast<float>(uint32_t(n >> 1) + 0x4b400000u)};
}
inline float sum(V v) { return v.x; }
inline float largest(V v) { return v.x; }

}  // namespace

}  // namespace mlxcel::native

#include "vector_kernels.h"

namespace mlxcel::native {

const VectorKernels kPortableVectors = kTable;

}  // namespace mlxcel::native
