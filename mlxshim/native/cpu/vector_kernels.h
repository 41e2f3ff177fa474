// The functions of VectorKernels, written over a register type V that the including file defines before it:
//
//   V::kWidth                     floats of a register
//   load(p), store(p, v)          whole registers, at any address
//   load(p, n), store(p, n, v)    the first n < kWidth floats; the others of a loaded register are 0
//   set(x)                        x everywhere
//   + - * /, fma(a, b, c)         a * b + c
//   max(a, b), min(a, b)          b where one of them is NaN
//   power(v)                      2^n, where v = 1.5 * 2^23 + n for a whole n from -126 to 127
//   half(v)                       with n as above: 1.5 * 2^23 + floor(n / 2)
//   sum(v), largest(v)            over a register, in a fixed order
//   kScoreColumns                 registers of columns that scores() keeps a row
//
// Each file that includes this is compiled for its own instruction set. So it must not use an inline function of a header
// that other files use as well: the linker keeps one of them, perhaps the one that a lesser processor cannot run. Hence
// everything is in an unnamed namespace, and there is no std here.
#include "vector.h"

namespace mlxcel::native {

namespace {

constexpr int64_t W = V::kWidth;
constexpr float kInfinity = __builtin_huge_valf();

// Calls body(i, n) for registers of n floats: body sees whole ones as n = W.
template <class Body>
inline void each(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + W <= n; i += W) body(i, W);
  if (i < n) body(i, n - i);
}

inline V get(const float* p, int64_t n) { return n == W ? load(p) : load(p, n); }
inline void put(float* p, int64_t n, V v) { n == W ? store(p, v) : store(p, n, v); }

// e^x = 2^n e^r with |r| <= ln(2) / 2, and e^r by the polynomial of the Cephes library. The factor 2^n is applied in two
// steps, so that results reach from 0 over subnormals to infinity. NaN stays NaN.
inline V exp(V x) {
  const V magic = set(12582912.f);  // 1.5 * 2^23: adding it rounds to a whole number
  x = max(set(-104.f), min(set(89.f), x));
  const V whole = fma(x, set(1.44269504f), magic), n = whole - magic;
  V r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  V p = fma(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(p, r * r, r) + set(1.f);
  const V first = half(whole), second = whole - first + magic;
  return p * power(first) * power(second);
}

inline V silu(V x) { return x / (set(1.f) + exp(set(0.f) - x)); }

void add_rows(const float* a, const float* b, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, get(a + i, m) + get(b + i, m)); });
}

void multiply_rows(const float* a, const float* b, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, get(a + i, m) * get(b + i, m)); });
}

void silu_rows(const float* x, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, silu(get(x + i, m))); });
}

void swiglu_rows(const float* gate, const float* up, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, silu(get(gate + i, m)) * get(up + i, m)); });
}

void exp_rows(const float* x, float shift, float scale, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, exp((get(x + i, m) - set(shift)) * set(scale))); });
}

void rms_norm_row(const float* x, const float* w, float eps, int64_t n, float* y) {
  V a = set(0.f), b = set(0.f);
  int64_t i = 0;
  for (; i + 2 * W <= n; i += 2 * W) {
    const V s = load(x + i), t = load(x + i + W);
    a = fma(s, s, a);
    b = fma(t, t, b);
  }
  for (; i < n; i += W) {
    const V s = get(x + i, n - i < W ? n - i : W);
    a = fma(s, s, a);
  }
  const V factor = set(1.f / __builtin_sqrtf(sum(a + b) / float(n) + eps));
  if (w)
    each(n, [&](int64_t j, int64_t m) { put(y + j, m, get(x + j, m) * factor * get(w + j, m)); });
  else
    each(n, [&](int64_t j, int64_t m) { put(y + j, m, get(x + j, m) * factor); });
}

void rotate_rows(const float* a, const float* b, const float* cosines, const float* sines, float mscale, int64_t n, float* ya,
                 float* yb) {
  each(n, [&](int64_t i, int64_t m) {
    const V x = get(a + i, m) * set(mscale), y = get(b + i, m) * set(mscale), c = get(cosines + i, m), s = get(sines + i, m);
    put(ya + i, m, x * c - y * s);
    put(yb + i, m, x * s + y * c);
  });
}

void add_scaled_row(const float* x, float w, int64_t n, float* y) {
  each(n, [&](int64_t i, int64_t m) { put(y + i, m, fma(set(w), get(x + i, m), get(y + i, m))); });
}

float max_of(const float* x, int64_t n) {
  V best = set(-kInfinity);
  int64_t i = 0;
  for (; i + W <= n; i += W) best = max(load(x + i), best);
  float one = largest(best);
  for (; i < n; i++) one = x[i] > one ? x[i] : one;
  return one;
}

// Rows of queries that are multiplied with the keys, or of weights with the values, at a time.
constexpr int kRows = 6;

template <int R>
void scores_of(const float* const* q, const float* keys, int64_t dim, float scale, int64_t begin, int64_t end, float* s) {
  constexpr int C = kScoreColumns;
  for (int64_t j = begin / (C * W) * (C * W); j < end; j += C * W) {
    V sums[R][C];
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) sums[r][c] = set(0.f);
    const float* k = keys + j;
    for (int64_t d = 0; d < dim; d++, k += kBlockKeys) {
      V column[C];
      for (int c = 0; c < C; c++) column[c] = load(k + c * W);
      for (int r = 0; r < R; r++) {
        const V x = set(q[r][d]);
        for (int c = 0; c < C; c++) sums[r][c] = fma(x, column[c], sums[r][c]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) store(s + r * kBlockKeys + j + c * W, sums[r][c] * set(scale));
  }
}

void scores(const float* const* q, int64_t rows, const float* keys, int64_t dim, float scale, int64_t begin, int64_t end,
            float* s) {
  for (; rows >= kRows; rows -= kRows, q += kRows, s += kRows * kBlockKeys)
    scores_of<kRows>(q, keys, dim, scale, begin, end, s);
  switch (rows) {
    case 1: return scores_of<1>(q, keys, dim, scale, begin, end, s);
    case 2: return scores_of<2>(q, keys, dim, scale, begin, end, s);
    case 3: return scores_of<3>(q, keys, dim, scale, begin, end, s);
    case 4: return scores_of<4>(q, keys, dim, scale, begin, end, s);
    case 5: return scores_of<5>(q, keys, dim, scale, begin, end, s);
  }
}

float soften(float* s, int64_t begin, int64_t end, float* top, float* total) {
  for (int64_t j = 0; j < begin; j++) s[j] = -kInfinity;
  for (int64_t j = end; j < kBlockKeys; j++) s[j] = -kInfinity;
  V best = set(*top);
  for (int64_t j = 0; j < kBlockKeys; j += W) best = max(load(s + j), best);
  const float now = largest(best);
  // Where all scores are -infinity so far, weights are e^(-infinity).
  const float shift = now == -kInfinity ? 0.f : now;
  V added = set(0.f);
  for (int64_t j = 0; j < kBlockKeys; j += W) {
    const V p = exp(load(s + j) - set(shift));
    store(s + j, p);
    added = added + p;
  }
  float one[W];
  store(one, exp(set(*top - shift)));
  *top = now;
  *total = *total * one[0] + sum(added);
  return one[0];
}

template <int R, int C>
inline void weigh_columns(const float* p, const float* values, int64_t dim, int64_t begin, int64_t end, const float* factor,
                          float* o, int64_t o_stride, int64_t width) {
  V sums[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) sums[r][c] = (width == C * W ? load(o + r * o_stride + c * W) : load(o + r * o_stride, width)) * set(factor[r]);
  for (int64_t j = begin; j < end; j++) {
    V row[C];
    for (int c = 0; c < C; c++) row[c] = width == C * W ? load(values + j * dim + c * W) : load(values + j * dim, width);
    for (int r = 0; r < R; r++) {
      const V x = set(p[r * kBlockKeys + j]);
      for (int c = 0; c < C; c++) sums[r][c] = fma(x, row[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++)
      width == C * W ? store(o + r * o_stride + c * W, sums[r][c]) : store(o + r * o_stride, width, sums[r][c]);
}

template <int R>
void weigh_of(const float* p, const float* values, int64_t dim, int64_t begin, int64_t end, const float* factor, float* o,
              int64_t o_stride) {
  constexpr int C = kScoreColumns;
  int64_t i = 0;
  for (; i + C * W <= dim; i += C * W) weigh_columns<R, C>(p, values + i, dim, begin, end, factor, o + i, o_stride, C * W);
  for (; i + W <= dim; i += W) weigh_columns<R, 1>(p, values + i, dim, begin, end, factor, o + i, o_stride, W);
  if (i < dim) weigh_columns<R, 1>(p, values + i, dim, begin, end, factor, o + i, o_stride, dim - i);
}

void weigh(const float* p, int64_t rows, const float* values, int64_t dim, int64_t begin, int64_t end, const float* factor,
           float* o, int64_t o_stride) {
  for (; rows >= kRows; rows -= kRows, p += kRows * kBlockKeys, factor += kRows, o += kRows * o_stride)
    weigh_of<kRows>(p, values, dim, begin, end, factor, o, o_stride);
  switch (rows) {
    case 1: return weigh_of<1>(p, values, dim, begin, end, factor, o, o_stride);
    case 2: return weigh_of<2>(p, values, dim, begin, end, factor, o, o_stride);
    case 3: return weigh_of<3>(p, values, dim, begin, end, factor, o, o_stride);
    case 4: return weigh_of<4>(p, values, dim, begin, end, factor, o, o_stride);
    case 5: return weigh_of<5>(p, values, dim, begin, end, factor, o, o_stride);
  }
}

constexpr VectorKernels kTable{add_rows,    multiply_rows,  silu_rows, swiglu_rows, exp_rows, rms_norm_row,
                               rotate_rows, add_scaled_row, max_of,    scores,      soften,   weigh};

}  // namespace

}  // namespace mlxcel::native
