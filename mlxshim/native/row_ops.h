// Ops that work row by row.
#pragma once

#include <memory>

#include "step.h"
#include "weights.h"

namespace mlxcel::native {

using RowOpPointer = std::unique_ptr<RowOp>;

RowOpPointer make_embed(Rows ids, const Matrix& table, Rows out);
RowOpPointer make_prepare(Rows x, int64_t vectors, const Matrix& matrix, Rows out);
RowOpPointer make_rms_norm(Rows x, int64_t vectors, const float* w, float eps, Rows out);
RowOpPointer make_binary(const char* name, void (*VectorKernels::*kernel)(const float*, const float*, int64_t, float*),
                         Rows a, Rows b, Rows out);
RowOpPointer make_silu(Rows x, Rows out);
// Columns of every vector of x, or as many elements in the same order: copies of elements of `size` bytes.
RowOpPointer make_copy(Rows x, int64_t vectors, int64_t start, Rows out, int64_t size);
RowOpPointer make_gather_rows(Rows x, Rows rows, Rows out, int64_t size);
RowOpPointer make_cast(Rows x, int64_t dtype, Rows out);
// From the program's own float input of another type.
RowOpPointer make_widen(Rows x, int64_t dtype, Rows out);

// Cosines, then sines, of every position: [dims/2] each.
struct Angles {
  std::vector<float> periods;
  float scale;
};
RowOpPointer make_angles(Rows positions, Angles angles, Rows out);
struct Turn {
  int64_t heads, width, dims;
  bool traditional;
  float mscale;
};
RowOpPointer make_rope(Rows x, Rows angles, Turn turn, Rows out);
RowOpPointer make_kv_write(Rows k, Rows v, int64_t layer);

RowOpPointer make_route(Rows logits, int64_t k, bool normalize, Rows indices, Rows weights);
RowOpPointer make_combine(Rows y, Rows weights, Rows out);

RowOpPointer make_load_tokens(Rows tokens, Rows slots, Rows out);
RowOpPointer make_store_tokens(Rows tokens, Rows slots);
RowOpPointer make_penalize(Rows logits, Rows history, Rows penalties, Rows out);
RowOpPointer make_bias(Rows logits, Rows ids, Rows values, Rows out);
RowOpPointer make_argmax(Rows logits, Rows out);
RowOpPointer make_sample(Rows logits, Rows settings, Rows out);

}  // namespace mlxcel::native
