// Everything that is computed on rows of f32 besides the matrix products: one table of functions for each instruction
// set.
//
// vector_kernels.h writes each of them once, over a type that stands for a register; vector_portable.cpp is the plain
// C++ of it. At one level a result depends on the arguments alone: sums are made in one order, whatever the row's
// neighbours are.
#pragma once

#include <cstdint>

#include "matmul.h"

namespace mlxcel::native {

// The keys of a block of scores: those of a page of the state, in lines of so many.
constexpr int64_t kBlockKeys = 64, kLineKeys = 16;

// Memory that will be read next: it is fetched into the cache while a kernel works.
struct Ahead {
  const void* memory = nullptr;
  int64_t bytes = 0;
};

struct VectorKernels {
  // y = a + b, a * b; y may be a or b.
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*multiply)(const float* a, const float* b, int64_t n, float* y);
  // y = x * sigmoid(x); y = silu(gate) * up.
  void (*silu)(const float* x, int64_t n, float* y);
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* y);
  // y = e^((x - shift) * scale). Within 2 units in the last place of e^x for the f32 argument that it computes.
  void (*exp)(const float* x, float shift, float scale, int64_t n, float* y);
  // y = x / sqrt(mean(x^2) + eps) * w; w may be null.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* y);
  // Turns the pairs (a[i], b[i]) by the angle with these cosines and sines, times m: the halves of a head.
  void (*rotate)(const float* a, const float* b, const float* cosines, const float* sines, float m, int64_t n,
                 float* ya, float* yb);
  // y += w * x.
  void (*add_scaled)(const float* x, float w, int64_t n, float* y);
  // The largest of n >= 1 numbers, NaN not counted (-infinity where there is nothing else).
  float (*max)(const float* x, int64_t n);

  // s[r * kBlockKeys + j] = scale * q[r] . key j, for r < rows and at least the keys begin <= j < end of a block, which
  // is [kBlockKeys / kLineKeys][dim][kLineKeys].
  void (*scores)(const float* const* q, int64_t rows, const float* keys, int64_t dim, float scale, int64_t begin,
                 int64_t end, float* s, Ahead ahead);
  // One block of a softmax that is made block by block: turns the scores [begin, end) of a row into weights relative to
  // the largest score so far, the others into 0, and updates that largest score and the sum of weights. Returns the
  // factor for what has been summed up with the weights before.
  float (*soften)(float* s, int64_t begin, int64_t end, float* largest, float* sum);
  // o[r * o_stride + i] = o[..] * factor[r] + sum over begin <= j < end of p[r * kBlockKeys + j] * values[j * dim + i].
  void (*weigh)(const float* p, int64_t rows, const float* values, int64_t dim, int64_t begin, int64_t end,
                const float* factor, float* o, int64_t o_stride, Ahead ahead);
};

const VectorKernels& vector_kernels(Level level);

// Of the files.
extern const VectorKernels kPortableVectors;
#if defined(__x86_64__) || defined(_M_X64)
extern const VectorKernels kAvx2Vectors, kAvx512Vectors;
#endif

}  // namespace mlxcel::native
