// What a GPU computes by kernels for many rows and for half types, against plain loops in double precision. Left out where
// the tests run on a CPU.
#include <algorithm>
#include <utility>

#include "abi.h"
#include "quantize.h"

using namespace test;

namespace {

struct Half {
  int64_t dtype;
  int digits;
  double unit() const { return std::ldexp(1, -digits); }  // the largest relative error of a rounding
};
constexpr Half kHalves[] = {{MLXSHIM_DTYPE_F16, 11}, {MLXSHIM_DTYPE_BF16, 8}};
constexpr Half kFull{F32, 24};

bool left_out() {
  if (on_gpu()) return false;
  std::printf("  left out: no GPU (MLXSHIM_TEST_DEVICE=cuda takes one)\n");
  CHECK(true);
  return true;
}

std::vector<float> normals(Random& random, int64_t n, int digits) {
  auto x = random.normals(n);
  for (float& v : x) v = rounded(v, digits);
  return x;
}

// What a product of x and w, of k numbers each, may be off: seven standard deviations of a rounding of every w, the
// rounding of the result, and those of sums in f32.
double slack(const float* x, const double* w, int64_t k, double sum, double unit) {
  double squares = 0, all = 0;
  for (int64_t i = 0; i < k; i++) {
    const double product = x[i] * w[i];
    squares += product * product;
    all += std::fabs(product);
  }
  return 7 * unit * std::sqrt(squares / 3) + 2 * unit * std::fabs(sum) + std::ldexp(all, -22);
}

// The weights that a quantized product takes: w, scales and biases, whose type is that of the half.
std::vector<int64_t> add_quantized(Session& session, Builder& b, Format f, const Quantized& q, std::vector<int64_t> dims,
                                   Half half) {
  const int64_t width = dims.back();
  dims.back() = width * f.bits / 32;
  std::vector<int64_t> in{b.weight(session.add(U32, dims, q.words))};
  dims.back() = width / f.group;
  if (f.mode == MLXSHIM_QUANT_AFFINE) {
    in.push_back(b.weight(session.add(F32, dims, q.scales, half.dtype)));
    in.push_back(b.weight(session.add(F32, dims, q.biases, half.dtype)));
  } else {
    in.insert(in.end(), {b.weight(session.add(U8, dims, q.scale_bytes)), -1});
  }
  return in;
}

// x of the half's type, given as f32, and back.
int64_t narrow(Builder& b, int64_t x, Type type, Half half) {
  type.dtype = half.dtype;
  return half.dtype == F32 ? x : b.op(MLXSHIM_OP_CAST, {x}, {}, {type});
}
int64_t wide(Builder& b, int64_t x, Type type) {
  type.dtype = F32;
  return b.op(MLXSHIM_OP_CAST, {x}, {}, {type});
}

}  // namespace

TEST(products_of_many_rows) {
  if (left_out()) return;
  Random random(20);
  for (Half half : {kFull, kHalves[0], kHalves[1]})
    for (auto format : all_formats()) {
      Session session;
      Builder b;
      const int64_t rows = 37, k = 256, n = 21;
      b.max_tokens = rows;
      auto q = random_quantized(random, format, n, k, half.digits);
      const Type type{F32, TOKENS, {rows, k}}, made{half.dtype, TOKENS, {rows, n}};
      std::vector<int64_t> in{narrow(b, b.input(type), type, half)};
      for (int64_t v : add_quantized(session, b, format, q, {n, k}, half)) in.push_back(v);
      b.output(wide(b, b.op(MLXSHIM_OP_LINEAR, in, {format.mode, format.bits, format.group}, {made}), made));
      auto x = normals(random, rows * k, half.digits);
      std::vector<double> want, allowed;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) {
          double sum = 0;
          for (int64_t i = 0; i < k; i++) sum += double(x[size_t(r * k + i)]) * q.values[size_t(j * k + i)];
          want.push_back(sum);
          allowed.push_back(slack(&x[size_t(r * k)], &q.values[size_t(j * k)], k, sum, half.unit()));
        }
      CHECK_PRODUCT(run<float>(session.load(b), {rows, 0, 1}, {x.data()}, rows * n), want, 0,
                    "products of " + format.print(), allowed);
    }
}

TEST(matrices_that_take_each_other_s_place) {
  // Many products at once and one after the other, of matrices of all sizes: none may see another one's matrix.
  if (left_out()) return;
  Random random(21);
  const Half half = kHalves[1];
  const Format format{MLXSHIM_QUANT_AFFINE, 4, 64};
  const int64_t rows = 600, width = 512;
  Session session;
  Builder b;
  b.max_tokens = rows;
  const Type type{F32, TOKENS, {rows, width}};
  const int64_t x = narrow(b, b.input(type), type, half);
  std::vector<std::pair<int64_t, Quantized>> products;  // of x
  for (int64_t n : {64, 4096, 128, 2048, 4096, 32, 1024, 4096, 64, 64, 3072}) {
    auto q = random_quantized(random, format, n, width, half.digits);
    std::vector<int64_t> in{x};
    for (int64_t v : add_quantized(session, b, format, q, {n, width}, half)) in.push_back(v);
    const Type made{half.dtype, TOKENS, {rows, n}};
    b.output(wide(b, b.op(MLXSHIM_OP_LINEAR, in, {format.mode, format.bits, format.group}, {made}), made));
    products.emplace_back(n, std::move(q));
  }
  auto given = normals(random, rows * width, half.digits);
  const int64_t program = session.load(b);
  for (int round = 0; round < 5; round++) {
    std::vector<int64_t> out(products.size());
    if (!OK(run_raw(program, {rows, 0, 1}, {given.data()}, out))) return;
    for (size_t p = 0; p < products.size(); p++) {
      const auto& [n, q] = products[p];
      auto got = read<float>(out[p], rows * n);
      std::vector<float> some;
      std::vector<double> want, allowed;
      for (int64_t t = 0; t < 300; t++) {
        const int64_t r = random.below(rows), j = random.below(n);
        const float* row = &given[size_t(r * width)];
        const double* w = &q.values[size_t(j * width)];
        double sum = 0;
        for (int64_t i = 0; i < width; i++) sum += double(row[i]) * w[i];
        some.push_back(got[size_t(r * n + j)]);
        want.push_back(sum);
        allowed.push_back(slack(row, w, width, sum, half.unit()));
      }
      CHECK_PRODUCT(some, want, 0, "product " + std::to_string(p), allowed);
    }
  }
}

TEST(a_matrix_in_parts) {
  // Larger than what is dequantized at once, 256 MB.
  if (left_out()) return;
  Random random(23);
  const Format format{MLXSHIM_QUANT_AFFINE, 4, 64};
  const int64_t rows = 17, k = 1024, n = 65536 + 4099;
  Session session;
  Builder b;
  b.max_tokens = rows;
  auto q = random_quantized(random, format, n, k);
  std::vector<int64_t> in{b.input({F32, TOKENS, {rows, k}})};
  for (int64_t v : add_quantized(session, b, format, q, {n, k}, kFull)) in.push_back(v);
  b.output(b.op(MLXSHIM_OP_LINEAR, in, {format.mode, format.bits, format.group}, {{F32, TOKENS, {rows, n}}}));
  auto x = random.normals(rows * k);
  auto got = run<float>(session.load(b), {rows, 0, 1}, {x.data()}, rows * n);
  std::vector<float> some;
  std::vector<double> want, allowed;
  for (int64_t t = 0; t < 4000; t++) {
    const int64_t r = random.below(rows), j = t % 2 ? random.below(n) : 65536 - 100 + random.below(200);
    double sum = 0;
    for (int64_t i = 0; i < k; i++) sum += double(x[size_t(r * k + i)]) * q.values[size_t(j * k + i)];
    some.push_back(got[size_t(r * n + j)]);
    want.push_back(sum);
    allowed.push_back(slack(&x[size_t(r * k)], &q.values[size_t(j * k)], k, sum, kFull.unit()));
  }
  CHECK_PRODUCT(some, want, 0, "products", allowed);
}

TEST(a_step_in_pieces) {
  // Values of 32 MB, one made of the other: with little memory the GPU has two pieces of 128 MB at a time.
  if (left_out()) return;
  Random random(24);
  Session session(int64_t(2) << 30);
  Builder b;
  const int64_t rows = 1000, width = 8192, ops = 60, bytes = rows * width * 4;
  b.max_tokens = rows;
  const Type type{F32, TOKENS, {rows, width}};
  const int64_t gate = b.input(type);
  int64_t value = b.input(type);
  for (int64_t i = 0; i < ops; i++) value = b.op(MLXSHIM_OP_SWIGLU, {gate, value}, {}, {type});
  b.output(value);
  std::vector<float> g(size_t(rows * width), 1.2784645f);  // silu(1.2784645) = 1
  auto x = random.normals(rows * width);
  const int64_t program = session.load(b);
  for (int round = 0; round < 3; round++) {
    mlxshim_memory_info before{sizeof before, 0, 0, 0, 0}, after = before;
    OK(mlxshim_memory_reset_peak(session.context));
    OK(mlxshim_memory(session.context, &before));
    auto got = run<float>(program, {rows, 0, 1}, {g.data(), x.data()}, rows * width);
    OK(mlxshim_memory(session.context, &after));
    std::vector<double> want(x.begin(), x.end());
    CHECK_CLOSE(got, want, 1e-4, "values");
    // Two pieces and one that is just done, of which the last value may stand out, what is kept for reuse, and the inputs.
    const int64_t mb = 1 << 20, allowed = 3 * (128 * mb + bytes) + 256 * mb + 2 * bytes, taken = after.peak - before.active;
    report(taken <= allowed, __FILE__, __LINE__,
           "a step takes " + std::to_string(taken) + " bytes, more than " + std::to_string(allowed));
  }
}

TEST(experts_of_prompts) {
  if (left_out()) return;
  Random random(22);
  auto formats = all_formats();
  formats.push_back({MLXSHIM_QUANT_NONE, 0, 0});
  struct Shape {
    int64_t experts, k, width, n, tokens;
    bool skewed;  // nearly all tokens go to a few experts, and some experts to nobody
  };
  // Widths that are no multiple of a tile's depth, heights below, at and above a tile's, more pairs than one tile holds.
  const Shape shapes[] = {{7, 2, 256, 130, 61, false}, {5, 3, 384, 6, 150, true}, {70, 8, 128, 256, 40, false}};
  for (Half half : kHalves)
    for (auto format : formats)
      for (const Shape& s : shapes)
        for (bool one_row : {true, false}) {
          Session session;
          Builder b;
          b.max_tokens = s.tokens;
          const bool dense = format.mode == MLXSHIM_QUANT_NONE;
          const int64_t width = dense || format.group < 128 ? s.width - 32 * (format.group <= 32) : s.width;
          const Type type = one_row ? Type{F32, TOKENS, {s.tokens, width}} : Type{F32, TOKENS, {s.tokens, s.k, width}};
          const Type made{half.dtype, TOKENS, {s.tokens, s.k, s.n}};
          std::vector<int64_t> in{narrow(b, b.input(type), type, half), b.input({I32, TOKENS, {s.tokens, s.k}})};
          std::vector<double> table;
          if (dense) {
            auto w = normals(random, s.experts * s.n * width, half.digits);
            table.assign(w.begin(), w.end());
            in.insert(in.end(), {b.weight(session.add(F32, {s.experts, s.n, width}, w, half.dtype)), -1, -1});
          } else {
            auto q = random_quantized(random, format, s.experts * s.n, width, half.digits);
            table = q.values;
            for (int64_t v : add_quantized(session, b, format, q, {s.experts, s.n, width}, half)) in.push_back(v);
          }
          b.output(wide(b, b.op(MLXSHIM_OP_EXPERT_LINEAR, in, {format.mode, format.bits, format.group}, {made}), made));
          auto x = normals(random, s.tokens * (one_row ? 1 : s.k) * width, half.digits);
          std::vector<int32_t> indices;
          for (int64_t i = 0; i < s.tokens * s.k; i++)
            indices.push_back(int32_t(s.skewed && random.below(20) > 0 ? s.experts - 2 : random.below(s.experts - 1)));
          auto got = run<float>(session.load(b), {s.tokens, 0, 1}, {x.data(), indices.data()}, s.tokens * s.k * s.n);
          std::vector<float> some;
          std::vector<double> want, allowed;
          for (int64_t t = 0; t < 2000; t++) {
            const int64_t i = random.below(s.tokens * s.k), j = t < 4 ? s.n - 1 : random.below(s.n);
            const float* row = &x[size_t((one_row ? i / s.k : i) * width)];
            const double* w = &table[size_t((indices[size_t(i)] * s.n + j) * width)];
            double sum = 0;
            for (int64_t c = 0; c < width; c++) sum += double(row[c]) * w[c];
            some.push_back(got[size_t(i * s.n + j)]);
            want.push_back(sum);
            allowed.push_back(slack(row, w, width, sum, half.unit()));
          }
          CHECK_PRODUCT(some, want, 0, "experts of " + format.print(), allowed);
        }
}

TEST(combined_experts) {
  if (left_out()) return;
  Random random(23);
  for (Half half : {kFull, kHalves[0], kHalves[1]}) {
    Session session;
    Builder b;
    const int64_t tokens = 33, k = 5, width = 300;
    b.max_tokens = tokens;
    const Type type{F32, TOKENS, {tokens, k, width}}, made{half.dtype, TOKENS, {tokens, width}};
    const int64_t y = narrow(b, b.input(type), type, half), shares = b.input({F32, TOKENS, {tokens, k}});
    b.output(wide(b, b.op(MLXSHIM_OP_COMBINE, {y, shares}, {}, {made}), made));
    auto rows = normals(random, tokens * k * width, half.digits), weights = random.normals(tokens * k);
    std::vector<double> want;
    for (int64_t t = 0; t < tokens; t++)
      for (int64_t c = 0; c < width; c++) {
        double sum = 0;
        for (int64_t i = 0; i < k; i++) sum += double(weights[size_t(t * k + i)]) * rows[size_t((t * k + i) * width + c)];
        want.push_back(sum);
      }
    CHECK_CLOSE(run<float>(session.load(b), {tokens, 0, 1}, {rows.data(), weights.data()}, tokens * width), want,
                half.unit() + 1e-6, "combine");
  }
}

TEST(attention_of_prompts) {
  if (left_out()) return;
  Random random(24);
  struct Work {
    int64_t slot, rows;
  };
  for (Half half : kHalves)
    for (int64_t dim : {64, 80, 96, 128, 256, 72})  // for the last one there is no kernel
      for (int64_t window : {0, 50}) {
        const int64_t heads = 6, kv_heads = 2, most = 420;
        const double scale = 1 / std::sqrt(double(dim));
        Session session;
        const int64_t state = session.make_state(2, most, {layer(kv_heads, dim, dim, window)}, half.dtype);
        Builder b;
        b.max_tokens = most;
        b.max_sequences = 2;
        const Type q_type{F32, TOKENS, {most, heads, dim}}, kv_type{F32, TOKENS, {most, kv_heads, dim}};
        auto q = narrow(b, b.input(q_type), q_type, half), k = narrow(b, b.input(kv_type), kv_type, half),
             v = narrow(b, b.input(kv_type), kv_type, half), slots = b.input({I32, SEQUENCES, {2}}),
             offsets = b.input({I32, OFFSETS, {3}}), contexts = b.input({I32, SEQUENCES, {2}});
        b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {0}, {});
        b.output(wide(b, b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {0, bits(scale)},
                              {{half.dtype, TOKENS, {most, heads, dim}}}), q_type));
        const int64_t program = session.load(b, state);
        std::vector<float> keys[2], values[2];
        // Prompts of one tile and of several, at once and in chunks of any length, and a step that decodes beside one.
        const std::vector<std::vector<Work>> steps{{{0, 64}}, {{1, 200}, {0, 5}}, {{0, 1}, {1, 67}}, {{0, 130}}, {{1, 4}}};
        for (const auto& step : steps) {
          std::vector<int32_t> ids, at{0}, ends;
          std::vector<float> qs, ks, vs;
          for (const Work& w : step) {
            auto add = [&](std::vector<float>& all, int64_t n, float by) {
              auto more = random.normals(n, by);
              for (float x : more) all.push_back(rounded(x, half.digits));
            };
            add(qs, w.rows * heads * dim, 2);
            add(ks, w.rows * kv_heads * dim, 1);
            add(vs, w.rows * kv_heads * dim, 1);
            keys[w.slot].insert(keys[w.slot].end(), ks.end() - w.rows * kv_heads * dim, ks.end());
            values[w.slot].insert(values[w.slot].end(), vs.end() - w.rows * kv_heads * dim, vs.end());
            ids.push_back(int32_t(w.slot));
            at.push_back(int32_t(at.back() + w.rows));
            ends.push_back(int32_t(int64_t(keys[w.slot].size()) / (kv_heads * dim)));
          }
          std::vector<int64_t> out(1);
          if (!OK(run_raw(program, {at.back(), 0, int64_t(step.size())},
                          {qs.data(), ks.data(), vs.data(), ids.data(), at.data(), ends.data()}, out)))
            return;
          auto got = read<float>(out[0], at.back() * heads * dim);
          std::vector<double> want;
          for (size_t s = 0; s < step.size(); s++)
            for (int64_t r = at[s]; r < at[s + 1]; r++)
              for (int64_t h = 0; h < heads; h++) {
                const int64_t position = ends[s] - at[s + 1] + r, g = h / (heads / kv_heads);
                const int64_t first = window ? std::max<int64_t>(0, position - window + 1) : 0;
                std::vector<double> e, y(static_cast<size_t>(dim));
                double best = -1e300, sum = 0;
                auto row = [&](const std::vector<float>* all, int64_t p) {
                  return &all[step[s].slot][size_t((p * kv_heads + g) * dim)];
                };
                for (int64_t p = first; p <= position; p++) {
                  double dot = 0;
                  for (int64_t i = 0; i < dim; i++) dot += double(qs[size_t((r * heads + h) * dim + i)]) * row(keys, p)[i];
                  e.push_back(dot * scale);
                  best = std::max(best, e.back());
                }
                for (double& x : e) sum += x = std::exp(x - best);
                for (int64_t p = first; p <= position; p++)
                  for (int64_t i = 0; i < dim; i++) y[size_t(i)] += e[size_t(p - first)] / sum * row(values, p)[i];
                want.insert(want.end(), y.begin(), y.end());
              }
          // MLX has scores in the half type too.
          CHECK_CLOSE(got, want, (dim == 72 ? 16 : 3) * half.unit(), "attention of heads of " + std::to_string(dim));
        }
      }
}
