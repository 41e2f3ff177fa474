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
// Each file that includes this is compiled for its own instruction set. So it must not use an inline function of a
// header that other files use as well: the linker keeps one of them, perhaps the one that a lesser processor cannot
// run. Hence everything is in an unnamed namespace, and there is no std here.
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

// e^x = 2^n e^r with |r| <= ln(2) / 2, and e^r by the polynomial of the Cephes library. The factor 2^n is applied in
// two steps, so that results reach from 0 over subnormals to infinity. NaN stays NaN.
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

void rotate_rows(const float* a, const float* b, const float* cosines, const float* sines, float mscale, int64_t n,
                 float* ya, float* yb) {
  each(n, [&](int64_t i, int64_t m) {
    const V x = get(a + i, m) * set(mscale), y = get(b + i, m) * set(mscale), c = get(cosines + i, m),
            s = get(sines + i, m);
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

// Fetches what is ahead in as many steps as a loop has.
class Fetch {
 public:
  Fetch(Ahead ahead, int64_t steps)
      : at_(static_cast<const char*>(ahead.memory)),
        end_(at_ + ahead.bytes),
        step_((ahead.bytes / 64 + steps) / steps * 64) {}
  void operator()() {
    const char* to = end_ - at_ > step_ ? at_ + step_ : end_;
    for (; at_ < to; at_ += 64) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const char *at_, *end_;
  int64_t step_;
};

template <int R, int C>
inline void scores_columns(const float* const* q, const float* keys, int64_t dim, float scale, float* s, int64_t first,
                           Ahead ahead) {
  V sums[R][C];
  const float* column[C];
  for (int c = 0; c < C; c++) {
    const int64_t j = first + c * W;
    column[c] = keys + j / kLineKeys * dim * kLineKeys + j % kLineKeys;
    for (int r = 0; r < R; r++) sums[r][c] = set(0.f);
  }
  Fetch fetch(ahead, dim);
  for (int64_t d = 0; d < dim; d++) {
    fetch();
    V key[C];
    for (int c = 0; c < C; c++) key[c] = load(column[c] + d * kLineKeys);
    for (int r = 0; r < R; r++) {
      const V x = set(q[r][d]);
      for (int c = 0; c < C; c++) sums[r][c] = fma(x, key[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) store(s + r * kBlockKeys + first + c * W, sums[r][c] * set(scale));
}

template <int R>
void scores_of(const float* const* q, const float* keys, int64_t dim, float scale, int64_t begin, int64_t end, float* s,
               Ahead ahead) {
  constexpr int C = kScoreColumns;
  int64_t j = begin / W * W;
  for (; j + C * W - W < end && j + C * W <= kBlockKeys; j += C * W, ahead = {})
    scores_columns<R, C>(q, keys, dim, scale, s, j, ahead);
  // Keys past the end are not even read: they are memory that does not come for nothing.
  for (; j < end; j += W, ahead = {}) scores_columns<R, 1>(q, keys, dim, scale, s, j, ahead);
}

void scores(const float* const* q, int64_t rows, const float* keys, int64_t dim, float scale, int64_t begin,
            int64_t end, float* s, Ahead ahead) {
  for (; rows >= kRows; rows -= kRows, q += kRows, s += kRows * kBlockKeys, ahead = {})
    scores_of<kRows>(q, keys, dim, scale, begin, end, s, ahead);
  switch (rows) {
    case 1: return scores_of<1>(q, keys, dim, scale, begin, end, s, ahead);
    case 2: return scores_of<2>(q, keys, dim, scale, begin, end, s, ahead);
    case 3: return scores_of<3>(q, keys, dim, scale, begin, end, s, ahead);
    case 4: return scores_of<4>(q, keys, dim, scale, begin, end, s, ahead);
    case 5: return scores_of<5>(q, keys, dim, scale, begin, end, s, ahead);
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
inline void weigh_columns(const float* p, const float* values, int64_t dim, int64_t begin, int64_t end,
                          const float* factor, float* o, int64_t o_stride, int64_t width, Ahead ahead) {
  // width is C * W, or less where C is 1.
  auto get_at = [&](const float* at, int c) { return C > 1 ? load(at + c * W) : get(at, width); };
  V sums[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) sums[r][c] = get_at(o + r * o_stride, c) * set(factor[r]);
  Fetch fetch(ahead, end - begin);
  for (int64_t j = begin; j < end; j++) {
    fetch();
    V row[C];
    for (int c = 0; c < C; c++) row[c] = get_at(values + j * dim, c);
    for (int r = 0; r < R; r++) {
      const V x = set(p[r * kBlockKeys + j]);
      for (int c = 0; c < C; c++) sums[r][c] = fma(x, row[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++)
      C > 1 ? store(o + r * o_stride + c * W, sums[r][c]) : put(o + r * o_stride, width, sums[r][c]);
}

template <int R>
void weigh_of(const float* p, const float* values, int64_t dim, int64_t begin, int64_t end, const float* factor,
              float* o, int64_t o_stride, Ahead ahead) {
  constexpr int C = kScoreColumns;
  int64_t i = 0;
  for (; i + C * W <= dim; i += C * W, ahead = {})
    weigh_columns<R, C>(p, values + i, dim, begin, end, factor, o + i, o_stride, C * W, ahead);
  for (; i < dim; i += W, ahead = {})
    weigh_columns<R, 1>(p, values + i, dim, begin, end, factor, o + i, o_stride, dim - i < W ? dim - i : W, ahead);
}

void weigh(const float* p, int64_t rows, const float* values, int64_t dim, int64_t begin, int64_t end,
           const float* factor, float* o, int64_t o_stride, Ahead ahead) {
  for (; rows >= kRows; rows -= kRows, p += kRows * kBlockKeys, factor += kRows, o += kRows * o_stride, ahead = {})
    weigh_of<kRows>(p, values, dim, begin, end, factor, o, o_stride, ahead);
  switch (rows) {
    case 1: return weigh_of<1>(p, values, dim, begin, end, factor, o, o_stride, ahead);
    case 2: return weigh_of<2>(p, values, dim, begin, end, factor, o, o_stride, ahead);
    case 3: return weigh_of<3>(p, values, dim, begin, end, factor, o, o_stride, ahead);
    case 4: return weigh_of<4>(p, values, dim, begin, end, factor, o, o_stride, ahead);
    case 5: return weigh_of<5>(p, values, dim, begin, end, factor, o, o_stride, ahead);
  }
}

constexpr VectorKernels kTable{add_rows,    multiply_rows,  silu_rows, swiglu_rows, exp_rows, rms_norm_row,
                               rotate_rows, add_scaled_row, max_of,    scores,      soften,   weigh};

}  // namespace

}  // namespace mlxcel::native
