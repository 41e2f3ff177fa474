// Products with the matrices of a model, the work that takes nearly all the time of a step.
//
// A matrix is packed once, when it is loaded, into the layout that a level's kernels read in order. Activations are
// prepared once per row (for quantized matrices: 16-bit integers with one f32 scale a group, and the sum of every
// group), then multiplied with any range of the matrix's rows by any number of threads.
//
// The result y[t][n] is computed by the same operations in the same order whatever the number of rows multiplied
// together, the range of n and the number of threads: at one level, results are bit-equal. The vector levels agree with
// each other too; the portable one, which computes in f32 throughout, differs from them in rounding.
//
// Rounding activations to 16 bits of their group's largest value costs at most a tenth of the error that activations in
// bf16 would have (see matmul_test.cpp). Dense matrices and mxfp8, whose values span 18 bits, are multiplied in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "../../common/blocks.h"

namespace mlxcel::native {

// What a matrix is made of: MLX's layout (see mlxshim.h), or a dense one without scales. A stack of matrices of one
// shape (experts) is packed as one, its members' rows following each other in the source.
struct MatrixSource {
  // Rows, from the first one that was asked for on.
  struct Rows {
    const void *weight, *scales, *biases;
  };
  // Memory for rows that are read.
  struct Buffer {
    std::vector<char> weight, scales, biases;
    FileBuffer file;
  };

  int64_t rows = 0, columns = 0;          // n and k, of one member
  int64_t members = 1;                    // matrices in the stack
  int64_t mode = 0, bits = 0, group = 0;  // MLXSHIM_QUANT_…
  const void* weight = nullptr;           // u32 words; dense: of dtype
  int64_t weight_dtype = 0;
  const void* scales = nullptr;  // of scale_dtype: f16, bf16, f32; u8 for the fp modes
  const void* biases = nullptr;  // affine only
  int64_t scale_dtype = 0;
  // If set, it is called for rows instead, by several threads at once, n of them from `row` of the stack on, and the
  // pointers above are null. What it returns may lie in the buffer.
  std::function<Rows(int64_t row, int64_t n, Buffer& buffer)> read;

  // Bytes of a row.
  int64_t weight_bytes() const;
  int64_t scale_bytes() const;
  Rows from(int64_t row, int64_t n, Buffer& buffer) const;
};

// A packed matrix. What is in it is the level's affair.
class Matrix {
 public:
  virtual ~Matrix() = default;

  int64_t rows = 0, columns = 0;  // of one member
  int64_t members = 1;
  virtual size_t bytes() const = 0;

  // Bytes of one prepared row of activations.
  virtual size_t prepared_bytes() const = 0;
  // Prepares `count` rows of x, `stride` floats apart, one after the other from `prepared` on (64-byte aligned). Rows
  // do not depend on each other, and matrices of one format and width prepare them alike: see prepared_like(). A NaN or
  // an infinity in a row makes its products NaN (infinite or NaN where f32 is used), zeros give zeros, activations
  // below 2^-111 lose bits gradually.
  virtual void prepare(const float* x, int64_t stride, int64_t count, void* prepared) const = 0;
  // y[t * y_stride + n] = row n of the member times row t of what was prepared, for t < count and begin <= n < end.
  // begin is a multiple of row_block() and counts, as n does, from the member's first row; y points at column 0.
  virtual void multiply(const void* prepared, int64_t count, int64_t begin, int64_t end, float* y, int64_t y_stride,
                        int64_t member = 0) const = 0;
  // Work is divided between threads at multiples of this many rows of the matrix.
  virtual int64_t row_block() const = 0;
  // The weights of row n as f32: columns of them. For embeddings. In a stack n counts the rows of all members.
  virtual void row(int64_t n, float* to) const = 0;
  // Whether what this matrix prepares may be multiplied with the other one as well: the activations of query, key and
  // value projections are prepared once.
  virtual bool prepared_like(const Matrix& other) const = 0;
  // A word on the layout and kernel, for inspection: "affine 4 bit, group 32, avx2 int16".
  virtual const char* describe() const = 0;
};

// The instruction sets that there are kernels for.
enum class Level { kPortable, kAvx2, kAvxVnni, kAvx512 };

// The best level of this processor, or the one that the environment variable MLXCEL_CPU names (portable, avx2, avxvnni,
// avx512). Throws Status MLXSHIM_ERR_ARGUMENT for a name that is unknown or a level that the processor lacks, naming
// what it has.
Level level();
const char* level_name(Level level);
// The levels that this processor has, portable included.
std::span<const Level> levels();

// Calls f with ranges that cover 0 to n, on as many threads as it likes.
using Spread = std::function<void(int64_t n, const std::function<void(int64_t begin, int64_t end)>& f)>;
inline void on_this_thread(int64_t n, const std::function<void(int64_t begin, int64_t end)>& f) { f(0, n); }

// Packs a matrix for a level, its rows spread over threads; nothing of the source is needed afterwards. Throws Status
// MLXSHIM_ERR_UNSUPPORTED for a format without a kernel (there is none that MLX has and this lacks), std::bad_alloc.
std::unique_ptr<Matrix> pack(Level level, const MatrixSource& source, const Spread& spread = on_this_thread);

}  // namespace mlxcel::native
