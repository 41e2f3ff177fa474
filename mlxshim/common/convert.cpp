#include "convert.h"

#include <bit>
#include <cstring>

#include "dtype.h"
#include "status.h"

namespace mlxcel {

float half_to_float(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  float small = float(fraction) * 0x1p-24f;  // zero and subnormals
  return sign ? -small : small;
}

uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));  // NaN
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);                             // rounds to infinity
  if (magnitude < 0x38800000) {                                                            // subnormal or zero
    // Adding 0.5 aligns the last kept bit with the float's own, so that the addition does the rounding.
    float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000));
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | (rounded - 0x38000000) >> 13);
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t float_to_bfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN stays one
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace {

template <class T>
T load(const void* base, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

template <class Load>
void store_all(Load load, void* to, int64_t dtype, size_t n) {
  switch (dtype) {
    case MLXSHIM_DTYPE_F16:
      for (size_t i = 0; i < n; i++) static_cast<uint16_t*>(to)[i] = float_to_half(float(load(i)));
      return;
    case MLXSHIM_DTYPE_BF16:
      for (size_t i = 0; i < n; i++) static_cast<uint16_t*>(to)[i] = float_to_bfloat(float(load(i)));
      return;
    case MLXSHIM_DTYPE_F32:
      for (size_t i = 0; i < n; i++) static_cast<float*>(to)[i] = float(load(i));
      return;
    case MLXSHIM_DTYPE_F64:
      for (size_t i = 0; i < n; i++) static_cast<double*>(to)[i] = double(load(i));
      return;
  }
  fail(MLXSHIM_ERR_INTERNAL, "no conversion to ", dtype_name(dtype));
}

}  // namespace

void convert_floats(const void* from, int64_t from_dtype, void* to, int64_t to_dtype, size_t n) {
  switch (from_dtype) {
    case MLXSHIM_DTYPE_F16:
      return store_all([=](size_t i) { return half_to_float(load<uint16_t>(from, i)); }, to, to_dtype, n);
    case MLXSHIM_DTYPE_BF16:
      return store_all([=](size_t i) { return bfloat_to_float(load<uint16_t>(from, i)); }, to, to_dtype, n);
    case MLXSHIM_DTYPE_F32: return store_all([=](size_t i) { return load<float>(from, i); }, to, to_dtype, n);
    case MLXSHIM_DTYPE_F64: return store_all([=](size_t i) { return load<double>(from, i); }, to, to_dtype, n);
  }
  fail(MLXSHIM_ERR_INTERNAL, "no conversion from ", dtype_name(from_dtype));
}

}  // namespace mlxcel
