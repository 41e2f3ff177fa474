// The layout that all vector kernels read, and the table of a level's kernels. Kernel files include this: it must stay
// free of inline functions of the standard library, which the linker might take from a file compiled for AVX-512.
//
// A panel is 16 rows of the matrix, one a lane of a vector of 32-bit elements (or of two vectors of 8), so that sums
// over k need no additions across lanes and scales are loaded for 16 rows at once. Panels follow each other; rows that
// fill up the last one of a member are zero.
//
// Quantized: a panel is a sequence of groups, a group is its values and then 16 scales and (affine) 16 biases as they
// were stored. Values are kept as pairs (k, k + 4), 16 bits apart in a word, which is what a multiply-add of 16-bit
// integers takes: pair p of 32 values is k = p / 4 * 8 + p % 4. A word of a lane holds 16 / bits pairs, lowest first:
//
//   4 bits: word c = pairs 4c .. 4c+3, which is the word that MLX stores.  8 bits: 2c, 2c+1.  2 bits: 8c .. 8c+7.
//   3 bits = the words of the 2 low bits, then those of the high one; 5 = 4 + 1; 6 = 4 + 2.
//
// mxfp8: a word holds the 4 codes that MLX stores in it. Dense: for every k the 16 lanes' weights as they were stored.
//
// A prepared row for integers: columns i16 in the order of pairs, then (at scales_at) scale and sum of every group as
// f32; a value is scale * i16. Groups are those of the weights: no sum of one leaves 31 bits (255 * 32767 * 128).
// For the others: columns f32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlxcel::native {

constexpr int kLanes = 16;  // rows of a panel

// What the values of a matrix are.
enum class Values { kAffine2, kAffine3, kAffine4, kAffine5, kAffine6, kAffine8, kMxfp4, kNvfp4, kMxfp8, kDense };
// What its scales are, or its weights where it is dense.
enum class Floats { kF16, kBf16, kF32, kU8 };

// A packed matrix as kernels see it.
struct Packed {
  const uint8_t* data = nullptr;
  int64_t columns = 0;
  int64_t group = 0;  // of scales; 0: dense
  Floats floats = Floats::kF32;
  int64_t float_bytes = 0;  // of one of them
  int64_t scale_bytes = 0;  // of the scales and biases of a group of a panel
  int64_t panel_bytes = 0;
  int64_t prepared_bytes = 0;  // of a row
  int64_t scales_at = 0;       // offset in a prepared row
};

// y[t * y_stride + i] = row i of the panels from `panel` on times prepared row t, for t < count and i < rows.
using MultiplyKernel = void (*)(const Packed& matrix, const void* prepared, int64_t count, int64_t panel, int64_t rows,
                                float* y, int64_t y_stride);

struct Kernels {
  const char* name;
  // Makes a row of integers of columns values; see above.
  void (*prepare)(const float* x, const Packed& matrix, void* prepared);
  MultiplyKernel (*find)(Values values, Floats floats);
  int64_t row_block;  // rows that a kernel does at once: a multiple of kLanes
};

// Of AVX2, for all levels that have it.
void prepare_integers(const float* x, const Packed& matrix, void* prepared);

extern const Kernels kAvx2Kernels, kAvxVnniKernels, kAvx512Kernels;

}  // namespace mlxcel::native
