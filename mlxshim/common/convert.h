// Conversion between float types, for weights that are kept in another type than they are stored in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlxcel {

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);  // rounds to nearest even
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);  // rounds to nearest even

// Converts n elements between two float dtypes; from and to must not overlap.
void convert_floats(const void* from, int64_t from_dtype, void* to, int64_t to_dtype, size_t n);

}  // namespace mlxcel
