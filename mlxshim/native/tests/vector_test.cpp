// The vector kernels of every level of this processor against f64 and against each other, on odd sizes, and with zeros,
// subnormals, infinities and NaN.
#include "cpu/vector.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "check.h"

using namespace mlxcel::native;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

template <class Body>
void each_level(Body body) {
  for (Level level : levels()) body(vector_kernels(level), std::string(level_name(level)));
}

std::vector<float> normals(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = scale * normal(engine);
  return v;
}

void near(float got, double want, double tolerance, const std::string& what) {
  const bool ok = std::isnan(want) ? std::isnan(got) : got == want || std::fabs(got - want) <= tolerance;
  test::report(ok, __FILE__, __LINE__, what + ": " + std::to_string(got) + ", not " + std::to_string(want));
}

// Where dimension i of key j lies.
size_t at(int64_t i, int64_t j, int64_t dim) { return size_t((j / kLineKeys * dim + i) * kLineKeys + j % kLineKeys); }

const int64_t kSizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 577};

}  // namespace

TEST(exponential) {
  each_level([](const VectorKernels& v, const std::string& level) {
    double worst = 0;
    std::vector<float> x(4096), y(x.size());
    for (int block = 0; block < 200; block++) {
      for (size_t i = 0; i < x.size(); i++) x[i] = -87.f + 175.7f * float(block * 4096 + int(i)) / (200.f * 4096);
      v.exp(x.data(), 0, 1, int64_t(x.size()), y.data());
      for (size_t i = 0; i < x.size(); i++) {
        const double want = std::exp(double(x[i]));
        const float above = std::nextafterf(float(want), kInfinity);
        if (std::isfinite(above))
          worst = std::max(worst, std::fabs(y[i] - want) / (double(above) - double(float(want))));
      }
    }
    std::printf("  %s: e^x within %.2f units in the last place\n", level.c_str(), worst);
    CHECK(worst < 2);
    const float odd[] = {0, -0.f, 1e-40f, -1e-40f, 88.8f, 1000, -95, -103, -200, kInfinity, -kInfinity, kNan};
    float out[12];
    v.exp(odd, 0, 1, 12, out);
    for (int i = 0; i < 12; i++)
      near(out[i], double(std::exp(odd[i])), 3e-45, level + " exp of " + std::to_string(odd[i]));
    const float shifted[] = {3, 5};
    v.exp(shifted, 5, 0.5f, 2, out);
    near(out[0], std::exp(-1.0), 1e-7, level + " shifted");
    near(out[1], 1, 0, level + " of 0");
  });
}

TEST(element_by_element) {
  each_level([](const VectorKernels& v, const std::string& level) {
    for (int64_t n : kSizes) {
      auto a = normals(size_t(n), 1, 3), b = normals(size_t(n), 2);
      a[0] = n % 2 ? kNan : kInfinity;
      std::vector<float> y(size_t(n) + 1, 7.f), z(y), s(y), t(y), u(y);
      v.add(a.data(), b.data(), n, y.data());
      v.multiply(a.data(), b.data(), n, z.data());
      v.silu(a.data(), n, s.data());
      v.swiglu(a.data(), b.data(), n, t.data());
      std::copy(b.begin(), b.end(), u.begin());
      v.add_scaled(a.data(), 0.5f, n, u.data());
      for (size_t i = 0; i < size_t(n); i++) {
        const double x = a[i], w = b[i], silu = x / (1 + std::exp(-x));
        near(y[i], double(a[i] + b[i]), 0, level + " add");
        near(z[i], double(a[i] * b[i]), 0, level + " multiply");
        near(s[i], silu, 1e-6 * (1 + std::fabs(silu)), level + " silu");
        near(t[i], silu * w, 1e-6 * (1 + std::fabs(silu * w)), level + " swiglu");
        near(u[i], 0.5 * x + w, 1e-6 * (1 + std::fabs(x)), level + " add_scaled");
      }
      for (auto* out : {&y, &z, &s, &t, &u}) CHECK(out->back() == 7.f);
      // In place.
      v.add(a.data(), b.data(), n, a.data());
      CHECK(std::memcmp(a.data(), y.data(), size_t(n) * sizeof(float)) == 0);
    }
  });
}

TEST(norms) {
  each_level([](const VectorKernels& v, const std::string& level) {
    for (int64_t n : kSizes)
      for (float scale : {1.f, 0.f, 1e-22f, 1e15f}) {
        auto x = normals(size_t(n), 3, scale), w = normals(size_t(n), 4);
        std::vector<float> y(size_t(n) + 1, 7.f), z(y);
        v.rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
        v.rms_norm(x.data(), nullptr, 1e-5f, n, z.data());
        double sum = 0;
        for (float e : x) sum += double(e) * e;
        for (size_t i = 0; i < size_t(n); i++) {
          const double want = x[i] / std::sqrt(sum / double(n) + double(1e-5f));
          near(z[i], want, 2e-6 * (1e-6 + std::fabs(want)), level + " norm");
          near(y[i], want * w[i], 2e-6 * (1e-6 + std::fabs(want * w[i])), level + " weighted norm");
        }
        CHECK(y.back() == 7.f && z.back() == 7.f);
      }
    float x[] = {1, kNan, 2}, y[3];
    v.rms_norm(x, nullptr, 1e-5f, 3, y);
    for (float e : y) CHECK(std::isnan(e));
  });
}

TEST(rotation) {
  each_level([](const VectorKernels& v, const std::string& level) {
    for (int64_t n : kSizes) {
      auto a = normals(size_t(n), 5), b = normals(size_t(n), 6), c = normals(size_t(n), 7), s = normals(size_t(n), 8);
      std::vector<float> ya(size_t(n) + 1, 7.f), yb(ya);
      v.rotate(a.data(), b.data(), c.data(), s.data(), 1.5f, n, ya.data(), yb.data());
      for (size_t i = 0; i < size_t(n); i++) {
        near(ya[i], 1.5 * (double(a[i]) * c[i] - double(b[i]) * s[i]), 4e-6, level + " rotate");
        near(yb[i], 1.5 * (double(a[i]) * s[i] + double(b[i]) * c[i]), 4e-6, level + " rotate");
      }
      CHECK(ya.back() == 7.f && yb.back() == 7.f);
    }
  });
}

TEST(largest) {
  each_level([](const VectorKernels& v, const std::string& level) {
    for (int64_t n : kSizes) {
      auto x = normals(size_t(n), 9);
      near(v.max(x.data(), n), double(*std::max_element(x.begin(), x.end())), 0, level + " max");
      x[size_t(n / 2)] = kNan;
      float best = -kInfinity;
      for (float e : x) best = e > best ? e : best;
      near(v.max(x.data(), n), double(best), 0, level + " max beside NaN");
    }
  });
}

TEST(attention_of_a_block) {
  each_level([](const VectorKernels& v, const std::string& level) {
    for (int64_t rows : {1, 2, 3, 5, 6, 7, 13, 24})
      for (int64_t dim : {1, 6, 8, 64, 80, 100}) {
        auto q = normals(size_t(rows * dim), 10), keys = normals(size_t(dim * kBlockKeys), 11),
             values = normals(size_t(kBlockKeys * dim), 12), o = normals(size_t(rows * dim), 13);
        std::vector<const float*> each;
        for (int64_t r = 0; r < rows; r++) each.push_back(&q[size_t(r * dim)]);
        for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 64}, {0, 1}, {3, 40}, {63, 64}, {16, 32}}) {
          // What must not be seen is NaN.
          auto k = keys, w = values;
          for (int64_t j = 0; j < kBlockKeys; j++)
            if (j < from || j >= to)
              for (int64_t i = 0; i < dim; i++) k[at(i, j, dim)] = w[size_t(j * dim + i)] = kNan;
          std::vector<float> s(size_t(rows * kBlockKeys)), factors, best(size_t(rows), 0.5f), total(size_t(rows), 2.f),
              y = o;
          v.scores(each.data(), rows, k.data(), dim, 0.25f, from, to, s.data(), {});
          const auto raw = s;
          for (int64_t r = 0; r < rows; r++)
            factors.push_back(v.soften(&s[size_t(r * kBlockKeys)], from, to, &best[size_t(r)], &total[size_t(r)]));
          v.weigh(s.data(), rows, w.data(), dim, from, to, factors.data(), y.data(), dim, {});
          for (int64_t r = 0; r < rows; r++) {
            std::vector<double> e;
            double top = 0.5, sum = 0;
            for (int64_t j = from; j < to; j++) {
              double dot = 0;
              for (int64_t i = 0; i < dim; i++) dot += double(q[size_t(r * dim + i)]) * keys[at(i, j, dim)];
              e.push_back(dot / 4);
              near(raw[size_t(r * kBlockKeys + j)], dot / 4, 2e-5, level + " score");
              top = std::max(top, dot / 4);
            }
            const double factor = std::exp(0.5 - top);
            for (double& x : e) sum += x = std::exp(x - top);
            near(best[size_t(r)], top, 2e-5, level + " largest");
            near(total[size_t(r)], 2 * factor + sum, 2e-4, level + " sum of weights");
            for (int64_t i = 0; i < dim; i++) {
              double want = factor * o[size_t(r * dim + i)];
              for (int64_t j = from; j < to; j++) want += e[size_t(j - from)] * values[size_t(j * dim + i)];
              near(y[size_t(r * dim + i)], want, 3e-4, level + " weighted values");
            }
          }
        }
      }
    // Rows do not depend on how many there are.
    auto q = normals(24 * 64, 14), keys = normals(64 * 64, 15);
    std::vector<const float*> each;
    for (int r = 0; r < 24; r++) each.push_back(&q[size_t(r * 64)]);
    std::vector<float> all(24 * 64), one(64);
    v.scores(each.data(), 24, keys.data(), 64, 1, 0, 64, all.data(), {});
    for (int r = 0; r < 24; r++) {
      v.scores(&each[size_t(r)], 1, keys.data(), 64, 1, 0, 64, one.data(), {keys.data(), 4000});
      CHECK(std::memcmp(one.data(), &all[size_t(r * 64)], 64 * sizeof(float)) == 0);
    }
  });
}

TEST(scores_that_are_all_infinite) {
  each_level([](const VectorKernels& v, const std::string&) {
    std::vector<float> s(64, -kInfinity);
    float best = -kInfinity, total = 0;
    v.soften(s.data(), 0, 64, &best, &total);
    CHECK(best == -kInfinity && total == 0);
    for (float p : s) CHECK(p == 0);
  });
}
