// Every op that needs no state, against plain loops in double precision, on odd shapes and with live counts below the
// recorded ones.
#include <algorithm>
#include <numeric>

#include "abi.h"
#include "quantize.h"

using namespace test;

namespace {

// A program of one op over f32 inputs [T, ...]; returns the output for `live` tokens.
struct OneOp {
  Session session;
  Builder builder;

  OneOp(int64_t recorded) { builder.max_tokens = recorded; }

  std::vector<float> floats(int64_t value, int64_t live, std::vector<const void*> inputs, int64_t n) {
    builder.output(value);
    return run<float>(session.load(builder), {live, 0, 1}, inputs, n);
  }
};

std::vector<double> dense(const std::vector<float>& x, const std::vector<double>& w, int64_t rows, int64_t k,
                          int64_t n) {
  std::vector<double> y(size_t(rows * n));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < k; i++) y[size_t(r * n + j)] += double(x[size_t(r * k + i)]) * w[size_t(j * k + i)];
  return y;
}

}  // namespace

TEST(linear_dense) {
  Random random(1);
  for (int64_t live : {1, 2, 3, 7, 17})
    for (bool with_bias : {false, true}) {
      OneOp it(17);
      const int64_t k = 37, n = 11;
      auto x = random.normals(live * k), w = random.normals(n * k), b = random.normals(n);
      auto xv = it.builder.input({F32, TOKENS, {17, k}});
      auto wv = it.builder.weight(it.session.add(F32, {n, k}, w));
      std::vector<int64_t> in{xv, wv};
      if (with_bias) in.insert(in.end(), {-1, -1, it.builder.weight(it.session.add(F32, {n}, b))});
      auto y = it.builder.op(MLXSHIM_OP_LINEAR, in, {0, 0, 0}, {{F32, TOKENS, {17, n}}});
      auto want = dense(x, {w.begin(), w.end()}, live, k, n);
      if (with_bias)
        for (size_t i = 0; i < want.size(); i++) want[i] += b[i % size_t(n)];
      CHECK_CLOSE(it.floats(y, live, {x.data()}, live * n), want, 1e-5, "linear of " + std::to_string(live));
    }
}

TEST(linear_quantized) {
  Random random(2);
  for (auto format : all_formats())
    for (int64_t live : {1, 5}) {
      OneOp it(6);
      const int64_t k = 256, n = 9;
      auto q = random_quantized(random, format, n, k);
      auto x = random.normals(live * k), bias = random.normals(n);
      auto xv = it.builder.input({F32, TOKENS, {6, k}});
      std::vector<int64_t> in{xv, it.builder.weight(it.session.add(U32, {n, k * format.bits / 32}, q.words))};
      if (format.mode == MLXSHIM_QUANT_AFFINE) {
        in.push_back(it.builder.weight(it.session.add(F32, {n, k / format.group}, q.scales)));
        in.push_back(it.builder.weight(it.session.add(F32, {n, k / format.group}, q.biases)));
      } else {
        in.push_back(it.builder.weight(it.session.add(U8, {n, k / format.group}, q.scale_bytes)));
        in.push_back(-1);
      }
      in.push_back(it.builder.weight(it.session.add(F32, {n}, bias)));
      auto y = it.builder.op(MLXSHIM_OP_LINEAR, in, {format.mode, format.bits, format.group}, {{F32, TOKENS, {6, n}}});
      auto want = dense(x, q.values, live, k, n);
      for (size_t i = 0; i < want.size(); i++) want[i] += bias[i % size_t(n)];
      std::vector<double> slack;
      for (int64_t t = 0; t < live; t++)
        for (int64_t j = 0; j < n; j++) slack.push_back(activation_rounding(&x[size_t(t * k)], &q.values[size_t(j * k)], k));
      CHECK_PRODUCT(it.floats(y, live, {x.data()}, live * n), want, 1e-5 * 16, "linear of " + format.print(), slack);
    }
}

TEST(embed) {
  Random random(3);
  auto formats = all_formats();
  formats.push_back({MLXSHIM_QUANT_NONE, 0, 0});
  for (auto format : formats) {
    OneOp it(4);
    const int64_t v = 13, h = 128;
    std::vector<int32_t> ids{12, 0, 12};
    std::vector<double> table;
    std::vector<int64_t> in{it.builder.input({I32, TOKENS, {4}})};
    if (format.mode == MLXSHIM_QUANT_NONE) {
      auto w = random.normals(v * h);
      table.assign(w.begin(), w.end());
      in.push_back(it.builder.weight(it.session.add(F32, {v, h}, w)));
    } else {
      auto q = random_quantized(random, format, v, h);
      table = q.values;
      in.push_back(it.builder.weight(it.session.add(U32, {v, h * format.bits / 32}, q.words)));
      if (format.mode == MLXSHIM_QUANT_AFFINE) {
        in.push_back(it.builder.weight(it.session.add(F32, {v, h / format.group}, q.scales)));
        in.push_back(it.builder.weight(it.session.add(F32, {v, h / format.group}, q.biases)));
      } else {
        in.push_back(it.builder.weight(it.session.add(U8, {v, h / format.group}, q.scale_bytes)));
      }
    }
    auto y = it.builder.op(MLXSHIM_OP_EMBED, in, {format.mode, format.bits, format.group}, {{F32, TOKENS, {4, h}}});
    std::vector<double> want;
    for (int32_t id : ids) want.insert(want.end(), table.begin() + id * h, table.begin() + (id + 1) * h);
    CHECK_CLOSE(it.floats(y, 3, {ids.data()}, 3 * h), want, 1e-6, "embed of " + format.print());
  }
}

TEST(rms_norm) {
  Random random(4);
  for (bool with_weight : {false, true})
    for (int64_t live : {1, 4}) {
      OneOp it(5);
      const int64_t heads = 3, d = 10;
      auto x = random.normals(live * heads * d), w = random.normals(d);
      std::vector<int64_t> in{it.builder.input({F32, TOKENS, {5, heads, d}})};
      if (with_weight) in.push_back(it.builder.weight(it.session.add(F32, {d}, w)));
      auto y = it.builder.op(MLXSHIM_OP_RMS_NORM, in, {bits(1e-5)}, {{F32, TOKENS, {5, heads, d}}});
      std::vector<double> want;
      for (int64_t r = 0; r < live * heads; r++) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++) sum += double(x[size_t(r * d + i)]) * x[size_t(r * d + i)];
        for (int64_t i = 0; i < d; i++)
          want.push_back(x[size_t(r * d + i)] / std::sqrt(sum / double(d) + 1e-5) * (with_weight ? w[size_t(i)] : 1));
      }
      CHECK_CLOSE(it.floats(y, live, {x.data()}, live * heads * d), want, 1e-5, "rms_norm");
    }
}

TEST(rope) {
  Random random(5);
  for (bool traditional : {false, true})
    for (bool with_periods : {false, true})
      for (int64_t dims : {8, 14})
        for (int64_t live : {1, 2, 7}) {
          OneOp it(8);
          const int64_t heads = 3, d = 14;
          const double base = 10000, scale = with_periods ? 1 : 0.5, mscale = with_periods ? 1.25 : 1;
          auto x = random.normals(live * heads * d);
          std::vector<int32_t> positions;
          std::vector<float> periods;
          for (int64_t t = 0; t < live; t++) positions.push_back(int32_t(random.below(300)));
          for (int64_t i = 0; i < dims / 2; i++) periods.push_back(1 + float(i) * 3);
          std::vector<int64_t> in{it.builder.input({F32, TOKENS, {8, heads, d}}), it.builder.input({I32, TOKENS, {8}})};
          if (with_periods) in.push_back(it.builder.weight(it.session.add(F32, {dims / 2}, periods)));
          auto y = it.builder.op(MLXSHIM_OP_ROPE, in, {dims, traditional, bits(base), bits(scale), bits(mscale)},
                                 {{F32, TOKENS, {8, heads, d}}});
          std::vector<double> want(x.begin(), x.end());
          for (int64_t t = 0; t < live; t++)
            for (int64_t h = 0; h < heads; h++)
              for (int64_t i = 0; i < dims / 2; i++) {
                double period = with_periods ? periods[size_t(i)] : std::pow(base, 2.0 * double(i) / double(dims));
                double angle = positions[size_t(t)] * scale / period;
                int64_t at = (t * heads + h) * d, a = at + (traditional ? 2 * i : i),
                        b = at + (traditional ? 2 * i + 1 : i + dims / 2);
                double xa = x[size_t(a)] * mscale, xb = x[size_t(b)] * mscale;
                want[size_t(a)] = xa * std::cos(angle) - xb * std::sin(angle);
                want[size_t(b)] = xa * std::sin(angle) + xb * std::cos(angle);
              }
          // The angle is computed in f32: up to 300 radians that is an error of 2e-5.
          CHECK_CLOSE(it.floats(y, live, {x.data(), positions.data()}, live * heads * d), want, 1e-4, "rope");
        }
}

TEST(elementwise) {
  Random random(6);
  const int64_t live = 3, n = 7;
  auto a = random.normals(live * n), b = random.normals(live * n);
  auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  struct {
    int64_t code;
    int inputs;
  } ops[] = {{MLXSHIM_OP_ADD, 2}, {MLXSHIM_OP_MULTIPLY, 2}, {MLXSHIM_OP_SILU, 1}, {MLXSHIM_OP_SWIGLU, 2}};
  for (auto op : ops) {
    OneOp it(4);
    std::vector<int64_t> in;
    std::vector<const void*> data{a.data(), b.data()};
    data.resize(size_t(op.inputs));
    for (int i = 0; i < op.inputs; i++) in.push_back(it.builder.input({F32, TOKENS, {4, n}}));
    auto y = it.builder.op(op.code, in, {}, {{F32, TOKENS, {4, n}}});
    std::vector<double> want;
    for (size_t i = 0; i < a.size(); i++) {
      double x = a[i], z = b[i];
      want.push_back(op.code == MLXSHIM_OP_ADD        ? x + z
                     : op.code == MLXSHIM_OP_MULTIPLY ? x * z
                     : op.code == MLXSHIM_OP_SILU     ? silu(x)
                                                      : silu(x) * z);
    }
    CHECK_CLOSE(it.floats(y, live, data, live * n), want, 1e-6, "op " + std::to_string(op.code));
  }
}

TEST(slice_reshape_cast_gather) {
  Random random(7);
  const int64_t live = 3;
  auto x = random.normals(live * 12);
  Session session;
  Builder b;
  b.max_tokens = 5;
  b.max_rows = 4;
  auto xv = b.input({F32, TOKENS, {5, 12}}), rows = b.input({I32, ROWS, {4}});
  auto sliced = b.op(MLXSHIM_OP_SLICE, {xv}, {3, 6}, {{F32, TOKENS, {5, 6}}});
  auto shaped = b.op(MLXSHIM_OP_RESHAPE, {sliced}, {}, {{F32, TOKENS, {5, 3, 2}}});
  auto wide = b.op(MLXSHIM_OP_CAST, {shaped}, {}, {{MLXSHIM_DTYPE_F16, TOKENS, {5, 3, 2}}});
  auto back = b.op(MLXSHIM_OP_CAST, {wide}, {}, {{F32, TOKENS, {5, 3, 2}}});
  auto flat = b.op(MLXSHIM_OP_RESHAPE, {back}, {}, {{F32, TOKENS, {5, 6}}});
  b.output(b.op(MLXSHIM_OP_GATHER_ROWS, {flat, rows}, {}, {{F32, ROWS, {4, 6}}}));
  int64_t program = session.load(b);
  for (std::vector<int32_t> pick : {std::vector<int32_t>{2, 0}, {1, 2}, {0, 1, 2}, {2}, {1, 1, 0, 2}}) {
    std::vector<double> want;
    for (int32_t r : pick)
      for (int64_t i = 3; i < 9; i++) want.push_back(x[size_t(r * 12 + i)]);
    auto got = run<float>(program, {live, int64_t(pick.size()), 1}, {x.data(), pick.data()}, int64_t(pick.size()) * 6);
    CHECK_CLOSE(got, want, 1e-3, "slice, reshape, cast, gather");
  }
  // No rows at all: nothing to compute, and nothing to read.
  run<float>(program, {live, 0, 1}, {x.data(), nullptr}, 0);
}

TEST(experts) {
  Random random(8);
  const int64_t experts = 5, k = 2, width = 64, n = 6;
  std::vector<Format> formats{{MLXSHIM_QUANT_NONE, 0, 0}, {MLXSHIM_QUANT_AFFINE, 4, 32}, {MLXSHIM_QUANT_MXFP4, 4, 32}};
  for (auto format : formats)
    for (int64_t live : {1, 3, 17})
      for (bool one_row : {true, false}) {
        OneOp it(17);
        std::vector<double> table;
        std::vector<int64_t> in{
            it.builder.input(one_row ? Type{F32, TOKENS, {17, width}} : Type{F32, TOKENS, {17, k, width}}),
            it.builder.input({I32, TOKENS, {17, k}})};
        if (format.mode == MLXSHIM_QUANT_NONE) {
          auto w = random.normals(experts * n * width);
          table.assign(w.begin(), w.end());
          in.insert(in.end(), {it.builder.weight(it.session.add(F32, {experts, n, width}, w)), -1, -1});
        } else {
          auto q = random_quantized(random, format, experts * n, width);
          table = q.values;
          in.push_back(it.builder.weight(it.session.add(U32, {experts, n, width * format.bits / 32}, q.words)));
          std::vector<int64_t> groups{experts, n, width / format.group};
          if (format.mode == MLXSHIM_QUANT_AFFINE) {
            in.push_back(it.builder.weight(it.session.add(F32, groups, q.scales)));
            in.push_back(it.builder.weight(it.session.add(F32, groups, q.biases)));
          } else {
            in.insert(in.end(), {it.builder.weight(it.session.add(U8, groups, q.scale_bytes)), -1});
          }
        }
        auto bias = random.normals(experts * n);
        in.push_back(it.builder.weight(it.session.add(F32, {experts, n}, bias)));
        auto y = it.builder.op(MLXSHIM_OP_EXPERT_LINEAR, in, {format.mode, format.bits, format.group},
                               {{F32, TOKENS, {17, k, n}}});
        auto x = random.normals(live * (one_row ? 1 : k) * width);
        std::vector<int32_t> indices;
        for (int64_t i = 0; i < live * k; i++) indices.push_back(int32_t(random.below(experts)));
        std::vector<double> want, slack;
        for (int64_t i = 0; i < live * k; i++)
          for (int64_t j = 0; j < n; j++) {
            int64_t e = indices[size_t(i)], row = one_row ? i / k : i;
            double sum = bias[size_t(e * n + j)];
            for (int64_t c = 0; c < width; c++)
              sum += x[size_t(row * width + c)] * table[size_t((e * n + j) * width + c)];
            want.push_back(sum);
            const bool dense = format.mode == MLXSHIM_QUANT_NONE;
            slack.push_back(dense ? 0 : activation_rounding(&x[size_t(row * width)], &table[size_t((e * n + j) * width)], width));
          }
        CHECK_PRODUCT(it.floats(y, live, {x.data(), indices.data()}, live * k * n), want, 1e-4,
                      "experts " + format.print(), slack);
      }
}

TEST(route_and_combine) {
  Random random(9);
  for (int64_t normalize : {0, 1})
    for (int64_t live : {1, 6}) {
      Session session;
      Builder b;
      b.max_tokens = 6;
      const int64_t experts = 7, k = 3, d = 4;
      auto logits = b.input({F32, TOKENS, {6, experts}}), y = b.input({F32, TOKENS, {6, k, d}});
      auto indices = b.op(MLXSHIM_OP_ROUTE, {logits}, {k, normalize}, {{I32, TOKENS, {6, k}}, {F32, TOKENS, {6, k}}});
      auto sum = b.op(MLXSHIM_OP_COMBINE, {y, indices + 1}, {}, {{F32, TOKENS, {6, d}}});
      b.output(indices);
      b.output(indices + 1);
      b.output(sum);
      auto x = random.normals(live * experts), rows = random.normals(live * k * d);
      std::vector<int64_t> out(3);
      if (!OK(run_raw(session.load(b), {live, 0, 1}, {x.data(), rows.data()}, out))) return;
      auto got = read<int32_t>(out[0], live * k);
      auto weights = read<float>(out[1], live * k);
      std::vector<double> want_sum;
      for (int64_t t = 0; t < live; t++) {
        const float* row = &x[size_t(t * experts)];
        std::vector<int32_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int a, int c) { return row[a] > row[c]; });
        double all = 0, best = 0;
        for (int64_t e = 0; e < experts; e++) all += std::exp(double(row[e]));
        for (int64_t i = 0; i < k; i++) best += std::exp(double(row[order[size_t(i)]]));
        std::vector<int32_t> mine(got.begin() + t * k, got.begin() + (t + 1) * k),
            expected(order.begin(), order.begin() + k);
        for (int64_t i = 0; i < k; i++) {
          double w = std::exp(double(row[mine[size_t(i)]])) / (normalize ? best : all);
          CHECK_NEAR(weights[size_t(t * k + i)], w, 1e-6);
        }
        for (int64_t c = 0; c < d; c++) {
          double s = 0;
          for (int64_t i = 0; i < k; i++) s += double(weights[size_t(t * k + i)]) * rows[size_t((t * k + i) * d + c)];
          want_sum.push_back(s);
        }
        std::sort(mine.begin(), mine.end());
        std::sort(expected.begin(), expected.end());
        CHECK(mine == expected);
      }
      CHECK_CLOSE(read<float>(out[2], live * d), want_sum, 1e-6, "combine");
    }
}

TEST(half_types) {
  // The same ops in f16 and bf16 as in f32, which the tests above compare with plain loops: within the type's rounding.
  Random random(10);
  const int64_t live = 5, heads = 3, d = 12;
  for (auto [dtype, tolerance] : {std::pair<int64_t, double>{MLXSHIM_DTYPE_F16, 4e-3}, {MLXSHIM_DTYPE_BF16, 4e-2}}) {
    Session session;
    Builder b;
    b.max_tokens = 6;
    const Type wide{F32, TOKENS, {6, heads, d}}, narrow{dtype, TOKENS, {6, heads, d}};
    auto x = b.input(wide), y = b.input(wide), positions = b.input({I32, TOKENS, {6}});
    auto w = b.weight(session.add(F32, {d}, random.normals(d)));
    auto both = [&](int64_t code, std::vector<int64_t> in, std::vector<int64_t> rest, std::vector<int64_t> attributes) {
      auto cast = in;
      for (auto& v : cast) v = b.op(MLXSHIM_OP_CAST, {v}, {}, {narrow});
      in.insert(in.end(), rest.begin(), rest.end());
      cast.insert(cast.end(), rest.begin(), rest.end());
      b.output(b.op(code, in, attributes, {wide}));
      b.output(b.op(MLXSHIM_OP_CAST, {b.op(code, cast, attributes, {narrow})}, {}, {wide}));
    };
    both(MLXSHIM_OP_ADD, {x, y}, {}, {});
    both(MLXSHIM_OP_SWIGLU, {x, y}, {}, {});
    both(MLXSHIM_OP_RMS_NORM, {x}, {w}, {bits(1e-5)});
    for (int64_t dims : {8, 12})
      for (int64_t traditional : {0, 1})
        both(MLXSHIM_OP_ROPE, {x}, {positions}, {dims, traditional, bits(1e4), bits(0.5), bits(1.5)});
    auto xs = random.normals(live * heads * d), ys = random.normals(live * heads * d);
    std::vector<int32_t> at{0, 1, 2, 30, 4};
    std::vector<int64_t> out(b.output_count());
    int64_t program = session.load_optional(b);
    if (!program) continue;
    if (!OK(run_raw(program, {live, 0, 1}, {xs.data(), ys.data(), at.data()}, out))) return;
    for (size_t i = 0; i < out.size(); i += 2) {
      auto exact = read<float>(out[i], live * heads * d), rounded = read<float>(out[i + 1], live * heads * d);
      CHECK_CLOSE(rounded, (std::vector<double>{exact.begin(), exact.end()}), tolerance, "half " + std::to_string(i));
    }
  }
}
