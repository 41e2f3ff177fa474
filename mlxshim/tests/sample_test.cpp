// Penalties, bias and sampling against their definition in double precision.
#include <algorithm>
#include <numeric>

#include "abi.h"

using namespace test;

namespace {

std::vector<int> falling(const float* logits, int64_t v) {
  std::vector<int> order(static_cast<size_t>(v));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  return order;
}

// Which candidates are left, and the chance of each.
struct Choice {
  std::vector<int> tokens;
  std::vector<double> p;
  double slack = 1e300;  // how near the closest decision was
};

Choice expected(const float* logits, int64_t v, double temperature, double top_k, double top_p, double min_p) {
  Choice c;
  auto order = falling(logits, v);
  if (top_k > 0 && top_k < double(v)) order.resize(size_t(top_k));
  std::vector<double> p;
  double sum = 0;
  for (int t : order) p.push_back(std::exp(double(logits[t]) - logits[order[0]])), sum += p.back();
  double before = 0;
  for (size_t i = 0; i < order.size(); i++) {
    double mine = p[i] / sum, best = p[0] / sum;
    if (i > 0) {
      if (top_p < 1) c.slack = std::min(c.slack, std::fabs(before - top_p));
      c.slack = std::min(c.slack, std::fabs(mine - min_p * best));
      if (top_p < 1 && before >= top_p) break;
      if (mine < min_p * best) break;
    }
    c.tokens.push_back(order[i]);
    before += mine;
  }
  sum = 0;
  for (int t : c.tokens)
    c.p.push_back(std::exp((double(logits[t]) - logits[c.tokens[0]]) / temperature)), sum += c.p.back();
  for (double& x : c.p) x /= sum;
  return c;
}

struct Sampler {
  Session session;
  int64_t program, v, rows;

  Sampler(int64_t rows_, int64_t v_) : v(v_), rows(rows_) {
    Builder b;
    b.max_rows = rows;
    auto logits = b.input({F32, ROWS, {rows, v}}), settings = b.input({F32, ROWS, {rows, 5}});
    b.output(b.op(MLXSHIM_OP_SAMPLE, {logits, settings}, {}, {{I32, ROWS, {rows}}}));
    program = session.load(b);
  }
  std::vector<int32_t> pick(const std::vector<float>& logits, const std::vector<float>& settings) {
    int64_t live = int64_t(settings.size()) / 5;
    return run<int32_t>(program, {1, live, 1}, {logits.data(), settings.data()}, live);
  }
};

}  // namespace

TEST(sample_follows_its_definition) {
  Random random(21);
  const int64_t v = 50;
  Sampler sampler(3, v);
  int compared = 0;
  for (int round = 0; round < 400; round++) {
    const int64_t live = 1 + round % 3;
    auto logits = random.normals(live * v, 2);
    std::vector<float> settings;
    for (int64_t r = 0; r < live; r++) {
      const float ks[] = {0, 1, 5, 40, 1000}, ps[] = {1, 0.9f, 0.5f, 0.1f, 0}, ms[] = {0, 0.05f, 0.3f, 1};
      settings.insert(settings.end(), {0.1f + 0.3f * float(random.below(7)), ks[random.below(5)], ps[random.below(5)],
                                       ms[random.below(4)], float(random.below(1000)) / 1000});
    }
    auto got = sampler.pick(logits, settings);
    for (int64_t r = 0; r < live; r++) {
      const float* s = &settings[size_t(r * 5)];
      Choice c = expected(&logits[size_t(r * v)], v, s[0], s[1], s[2], s[3]);
      if (c.slack < 1e-5) continue;
      double sum = 0;
      size_t i = 0;
      while (i + 1 < c.p.size() && (sum += c.p[i]) <= s[4]) i++;
      double low = std::accumulate(c.p.begin(), c.p.begin() + int64_t(i), 0.0), high = low + c.p[i];
      if (std::min(std::fabs(s[4] - low), std::fabs(s[4] - high)) < 1e-5 && s[4] > 0) continue;
      CHECK_EQUAL(got[size_t(r)], c.tokens[i]);
      compared++;
    }
  }
  CHECK(compared > 600);
}

TEST(sample_at_the_edges) {
  Sampler sampler(1, 6);
  std::vector<float> logits{1, 3, 3, -2, 3, 0};
  CHECK_EQUAL(sampler.pick(logits, {0, 0, 1, 0, 0.99f})[0], 1);  // greedy, the first of equals
  CHECK_EQUAL(sampler.pick(logits, {1, 2, 1, 0, 0.75f})[0], 2);  // ties: lower ids first
  CHECK_EQUAL(sampler.pick(logits, {1, 1, 1, 0, 0.999f})[0], 1);
  CHECK_EQUAL(sampler.pick(logits, {1, 0, 0, 0, 0.999f})[0], 1);  // top_p 0 keeps the best
  CHECK_EQUAL(sampler.pick(logits, {1, 0, 1, 1, 0.999f})[0], 4);  // min_p 1 keeps the equals of the best
  CHECK_EQUAL(sampler.pick(logits, {1, 0, 1, 0, 0})[0], 1);
  CHECK_EQUAL(sampler.pick(logits, {1, 0, 1, 0, 0.99999994f})[0], 3);                // the last candidate
  CHECK_EQUAL(sampler.pick(logits, {1e-6f, 0, 1, 0, 0.5f})[0], 2);                   // a tiny temperature
  CHECK(sampler.pick({NAN, 1, NAN, NAN, NAN, NAN}, {1, 0, 0.9f, 0, 0.5f})[0] == 1);  // NaN is lowest
  for (float temperature : {0.f, 1.f})                                               // and no choice if all are
    CHECK_EQUAL(sampler.pick({NAN, NAN, NAN, NAN, NAN, NAN}, {temperature, 0, 0.9f, 0, 0.5f})[0], -1);
  CHECK_EQUAL(sampler.pick({-1e30f, 5, -1e30f, 1e30f, 0, 0}, {0.7f, 0, 0.9f, 0.1f, 0.5f})[0], 3);
}

TEST(sample_frequencies) {
  // Over u = 0, 1/n, 2/n … every candidate is drawn as often as it should be.
  Random random(22);
  const int64_t v = 300, n = 1000;
  Sampler sampler(n, v);
  auto row = random.normals(v, 1.5f);
  std::vector<float> logits, settings;
  for (int64_t i = 0; i < n; i++) {
    logits.insert(logits.end(), row.begin(), row.end());
    settings.insert(settings.end(), {0.8f, 20, 0.95f, 0.02f, float(i) / float(n)});
  }
  auto got = sampler.pick(logits, settings);
  Choice c = expected(row.data(), v, 0.8, 20, 0.95, 0.02);
  for (size_t i = 0; i < c.tokens.size(); i++)
    CHECK_NEAR(double(std::count(got.begin(), got.end(), c.tokens[i])), c.p[i] * double(n), 1.1);
}

TEST(penalize_and_bias) {
  Random random(23);
  Session session;
  const int64_t rows = 4, v = 20, width = 6, biases = 3;
  Builder b;
  b.max_rows = rows;
  auto logits = b.input({F32, ROWS, {rows, v}}), history = b.input({I32, ROWS, {rows, width}}),
       penalties = b.input({F32, ROWS, {rows, 3}}), ids = b.input({I32, ROWS, {rows, biases}}),
       values = b.input({F32, ROWS, {rows, biases}});
  auto penalized = b.op(MLXSHIM_OP_PENALIZE, {logits, history, penalties}, {}, {{F32, ROWS, {rows, v}}});
  auto biased = b.op(MLXSHIM_OP_BIAS, {penalized, ids, values}, {}, {{F32, ROWS, {rows, v}}});
  b.output(biased);
  b.output(b.op(MLXSHIM_OP_ARGMAX, {biased}, {}, {{I32, ROWS, {rows}}}));
  int64_t program = session.load(b);
  for (int64_t live = 1; live <= rows; live++) {
    auto l = random.normals(live * v), val = random.normals(live * biases);
    std::vector<int32_t> past, id;
    std::vector<float> pen;
    std::vector<double> want(l.begin(), l.end());
    for (int64_t i = 0; i < live * width; i++) past.push_back(int32_t(random.below(8)) - 1);
    for (int64_t i = 0; i < live * biases; i++) id.push_back(int32_t(random.below(v + 1)) - 1);
    for (int64_t r = 0; r < live; r++) pen.insert(pen.end(), {1.3f, 0.25f, -0.5f});
    for (int64_t r = 0; r < live; r++) {
      for (int64_t t = 0; t < v; t++) {
        auto count = std::count(past.begin() + r * width, past.begin() + (r + 1) * width, int32_t(t));
        double& x = want[size_t(r * v + t)];
        if (count > 0) x = (x > 0 ? x / 1.3f : x * 1.3f) - double(count) * 0.25 + 0.5;
      }
      for (int64_t i = 0; i < biases; i++)
        if (int32_t t = id[size_t(r * biases + i)]; t >= 0) want[size_t(r * v + t)] += val[size_t(r * biases + i)];
    }
    std::vector<int64_t> out(2);
    if (!OK(run_raw(program, {1, live, 1}, {l.data(), past.data(), pen.data(), id.data(), val.data()}, out))) return;
    CHECK_CLOSE(read<float>(out[0], live * v), want, 1e-5, "penalize and bias");
    auto best = read<int32_t>(out[1], live);
    for (int64_t r = 0; r < live; r++)
      CHECK_EQUAL(best[size_t(r)],
                  int(std::max_element(want.begin() + r * v, want.begin() + (r + 1) * v) - (want.begin() + r * v)));
  }
  std::vector<int32_t> past(size_t(width), -1), id(size_t(biases), -1);
  std::vector<float> l(v), pen(3), val(biases);
  std::vector<int64_t> out(2);
  for (int32_t bad : {-2, int32_t(v), 2147483647}) {
    past[3] = bad;
    FAILS(MLXSHIM_ERR_ARGUMENT,
          run_raw(program, {1, 1, 1}, {l.data(), past.data(), pen.data(), id.data(), val.data()}, out));
    past[3] = -1;
    id[1] = bad;
    FAILS(MLXSHIM_ERR_ARGUMENT,
          run_raw(program, {1, 1, 1}, {l.data(), past.data(), pen.data(), id.data(), val.data()}, out));
    id[1] = -1;
  }
}
