// Every kernel of every level that this machine has, against double precision and against itself.
#include "cpu/matmul.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>

#include "common/convert.h"
#include "common/dtype.h"
#include "common/status.h"
#include "quantize.h"

using namespace mlxcel;
using namespace mlxcel::native;
using test::Format;
using test::Random;

namespace {

constexpr Level kLevels[] = {Level::kPortable, Level::kAvx2, Level::kAvxVnni, Level::kAvx512};

bool has(Level level) {
  auto all = levels();
  return std::find(all.begin(), all.end(), level) != all.end();
}

// A matrix with what its elements are worth.
struct Sample {
  Format format;
  int64_t dtype;  // of affine scales and of dense weights
  int64_t rows, columns, members;
  test::Quantized quantized;
  std::vector<uint8_t> weight, scales, biases;  // as packed
  std::vector<double> values, parts;            // w, and |scale * q| + |bias|, which bounds what is added up

  MatrixSource source() const {
    MatrixSource s;
    s.rows = rows, s.columns = columns, s.members = members;
    s.mode = format.mode, s.bits = format.bits, s.group = format.group;
    s.weight = format.mode ? static_cast<const void*>(quantized.words.data()) : weight.data();
    s.weight_dtype = format.mode ? int64_t(MLXSHIM_DTYPE_U32) : dtype;
    bool affine = format.mode == MLXSHIM_QUANT_AFFINE;
    s.scales = affine ? scales.data() : quantized.scale_bytes.data();
    s.biases = biases.data();
    s.scale_dtype = affine ? dtype : int64_t(MLXSHIM_DTYPE_U8);
    return s;
  }
  std::string print() const {
    std::string shape = std::to_string(members) + "x" + std::to_string(rows) + "x" + std::to_string(columns);
    return (format.mode ? format.print() : "dense") + ", " + dtype_name(dtype) + ", " + shape;
  }
};

// Rounds to a dtype: the bytes, and what they are worth.
std::vector<uint8_t> rounded(std::vector<float>& values, int64_t dtype) {
  std::vector<uint8_t> bytes(values.size() * size_t(dtype_size(dtype)));
  convert_floats(values.data(), MLXSHIM_DTYPE_F32, bytes.data(), dtype, values.size());
  convert_floats(bytes.data(), dtype, values.data(), MLXSHIM_DTYPE_F32, values.size());
  return bytes;
}

Sample make(Random& random, Format format, int64_t dtype, int64_t rows, int64_t columns, int64_t members = 1) {
  Sample s{format, dtype, rows, columns, members, {}, {}, {}, {}, {}, {}};
  int64_t all = rows * members;
  if (!format.mode) {
    std::vector<float> weights = random.normals(all * columns, 0.2f);
    s.weight = rounded(weights, dtype);
    s.values.assign(weights.begin(), weights.end());
    s.parts = s.values;
    return s;
  }
  s.quantized = test::random_quantized(random, format, all, columns);
  s.values = s.parts = s.quantized.values;
  if (format.mode != MLXSHIM_QUANT_AFFINE) return s;
  std::vector<float> scales = s.quantized.scales,
                     biases = s.quantized.biases;  // random_quantized's values are of these
  s.scales = rounded(scales, dtype);
  s.biases = rounded(biases, dtype);
  for (size_t i = 0; i < s.values.size(); i++) {
    size_t g = i / size_t(format.group);
    double q = std::round((s.values[i] - s.quantized.biases[g]) / s.quantized.scales[g]);
    s.values[i] = scales[g] * q + biases[g];
    s.parts[i] = std::fabs(scales[g] * q) + std::fabs(biases[g]);
  }
  return s;
}

// Prepared activations, at a 64-byte boundary.
class Prepared {
 public:
  Prepared(const Matrix& m, const float* x, int64_t stride, int64_t count)
      : memory_(m.prepared_bytes() * size_t(count) + 64) {
    at_ = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64);
    m.prepare(x, stride, count, at_);
  }
  const void* row(const Matrix& m, int64_t t) const { return at_ + size_t(t) * m.prepared_bytes(); }

 private:
  std::vector<char> memory_;
  char* at_;
};

std::vector<float> product(const Matrix& m, const std::vector<float>& x, int64_t count, int64_t member = 0) {
  Prepared prepared(m, x.data(), m.columns, count);
  std::vector<float> y(size_t(count * m.rows), -77);
  m.multiply(prepared.row(m, 0), count, 0, m.rows, y.data(), m.rows, member);
  return y;
}

// What a level may be off by. Roundings in f32: each term may lose half a bit of the running sum at every step. Where
// activations are 16-bit integers, each may be off by half their group's step, which is 1/32767 of its largest.
double allowed(const Sample& s, Level level, int64_t row, const float* x) {
  bool integers = level != Level::kPortable && s.format.mode && s.format.mode != MLXSHIM_QUANT_MXFP8;
  double sum = 0, steps = 0;
  int64_t group = s.format.mode ? s.format.group : s.columns;
  for (int64_t g = 0; g < s.columns; g += group) {
    double largest = 0, weights = 0;
    for (int64_t k = g; k < g + group; k++) {
      largest = std::max(largest, double(std::fabs(x[k])));
      weights += std::fabs(s.values[size_t(row * s.columns + k)]);
      sum += std::fabs(s.parts[size_t(row * s.columns + k)] * x[k]);
    }
    steps += weights * std::max(largest / 32767, 0x1p-126) * 0.5;
  }
  double operations = integers ? 2.0 * double(s.columns / group) + 6 : double(s.columns) + 6;
  return operations * 0x1p-24 * sum + (integers ? steps * 1.001 : 0) + 1e-38;
}

void check_against_doubles(const Sample& s, Level level, const Matrix& m, const std::vector<float>& x, int64_t count,
                           const std::vector<float>& y, int64_t member) {
  double worst = 0;
  for (int64_t t = 0; t < count; t++)
    for (int64_t n = 0; n < m.rows; n++) {
      int64_t row = member * m.rows + n;
      double want = 0;
      for (int64_t k = 0; k < m.columns; k++)
        want += s.values[size_t(row * m.columns + k)] * x[size_t(t * m.columns + k)];
      double off = std::fabs(y[size_t(t * m.rows + n)] - want) / allowed(s, level, row, &x[size_t(t * m.columns)]);
      worst = std::isnan(off) ? 1e9 : std::max(worst, off);
    }
  test::report(worst <= 1, __FILE__, __LINE__,
               std::string(m.describe()) + ": " + s.print() + ": " + std::to_string(worst) + " of what is allowed");
}

std::vector<Sample> samples(Random& random, std::initializer_list<std::pair<int64_t, int64_t>> shapes) {
  std::vector<Sample> all;
  for (auto [rows, columns] : shapes) {
    for (Format format : test::all_formats()) {
      int64_t width = (columns + format.group - 1) / format.group * format.group;
      if (format.mode == MLXSHIM_QUANT_AFFINE) {
        for (int64_t dtype : {MLXSHIM_DTYPE_F16, MLXSHIM_DTYPE_BF16, MLXSHIM_DTYPE_F32})
          all.push_back(make(random, format, dtype, rows, width));
      } else {
        all.push_back(make(random, format, MLXSHIM_DTYPE_U8, rows, width));
      }
    }
    for (int64_t dtype : {MLXSHIM_DTYPE_F16, MLXSHIM_DTYPE_BF16, MLXSHIM_DTYPE_F32})
      all.push_back(make(random, {MLXSHIM_QUANT_NONE, 0, 0}, dtype, rows, columns));
  }
  return all;
}

bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

}  // namespace

TEST(levels_of_this_machine) {
  for (Level level : kLevels)
    if (!has(level)) std::printf("level %s: not tested, this processor lacks it\n", level_name(level));
  CHECK(has(Level::kPortable));
  CHECK(levels().front() == Level::kPortable);
}

TEST(level_is_chosen_by_the_environment) {
#ifdef _WIN32
  auto choose = [](const char* level) { _putenv_s("MLXCEL_CPU", level); };  // "" unsets it
#else
  auto choose = [](const char* level) { *level ? setenv("MLXCEL_CPU", level, 1) : unsetenv("MLXCEL_CPU"); };
#endif
  choose("");
  CHECK(level() == levels().back());
  choose("portable");
  CHECK(level() == Level::kPortable);
  for (const char* bad : {"sse9", "AVX2", "avx512 "}) {
    choose(bad);
    try {
      level();
      CHECK(!"an unknown level is an error");
    } catch (const Status& e) {
      CHECK_EQUAL(int(e.code), int(MLXSHIM_ERR_ARGUMENT));
      CHECK(std::string(e.what()).find("avx2") != std::string::npos);
    }
  }
  for (Level l : kLevels) {
    choose(level_name(l));
    try {
      CHECK(level() == l);
      CHECK(has(l));
    } catch (const Status& e) {
      CHECK(!has(l));
      CHECK(std::string(e.what()).find("portable") != std::string::npos);  // what it has
    }
  }
  choose("");
}

TEST(products_equal_doubles) {
  Random random(1);
  for (const Sample& s : samples(random, {{1, 48}, {3, 96}, {17, 160}, {40, 576}}))
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      for (int64_t count : {1, 3, 14}) {
        std::vector<float> x = random.normals(count * s.columns);
        x[0] = 40;  // an outlier
        check_against_doubles(s, level, *m, x, count, product(*m, x, count), 0);
      }
    }
}

TEST(integers_do_not_overflow) {
  Random random(2);
  for (int64_t bits : {2, 3, 4, 5, 6, 8})
    for (int64_t group : {32, 64, 128}) {
      Sample s = make(random, {MLXSHIM_QUANT_AFFINE, bits, group}, MLXSHIM_DTYPE_F32, 16, 256);
      std::fill(s.quantized.words.begin(), s.quantized.words.end(), ~0u);
      for (size_t i = 0; i < s.values.size(); i++) {
        size_t g = i / size_t(group);
        float scale, bias;
        std::memcpy(&scale, &s.scales[g * 4], 4);
        std::memcpy(&bias, &s.biases[g * 4], 4);
        double q = double((1 << bits) - 1);
        s.values[i] = double(scale) * q + bias;
        s.parts[i] = std::fabs(double(scale) * q) + std::fabs(double(bias));
      }
      for (Level level : levels()) {
        auto m = pack(level, s.source());
        for (float value : {3.0f, -3.0f}) {
          std::vector<float> x(size_t(s.columns) * 2, value);
          check_against_doubles(s, level, *m, x, 2, product(*m, x, 2), 0);
        }
      }
    }
}

TEST(rows_are_dequantized) {
  Random random(3);
  for (const Sample& s : samples(random, {{19, 160}}))
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      std::vector<float> row(size_t(s.columns));
      double worst = 0;
      for (int64_t n = 0; n < s.rows; n++) {
        m->row(n, row.data());
        for (int64_t k = 0; k < s.columns; k++) {
          size_t i = size_t(n * s.columns + k);
          worst = std::max(worst, std::fabs(row[size_t(k)] - s.values[i]) / (std::fabs(s.parts[i]) * 0x1p-23 + 1e-38));
        }
      }
      test::report(worst <= 1, __FILE__, __LINE__, s.print() + " row: " + std::to_string(worst));
    }
}

// One by one, together, in ranges, in other places of memory: the same bits.
TEST(results_do_not_depend_on_company) {
  Random random(4);
  for (const Sample& s : samples(random, {{101, 320}}))
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      constexpr int64_t kCount = 29;
      std::vector<float> x = random.normals(kCount * s.columns);
      for (int64_t t = 5; t < 9; t++) std::copy_n(x.begin(), s.columns, x.begin() + t * s.columns);  // equal rows too
      Prepared prepared(*m, x.data(), s.columns, kCount);
      std::vector<float> alone(size_t(kCount * s.rows));
      for (int64_t t = 0; t < kCount; t++) {
        Prepared one(*m, &x[size_t(t * s.columns)], s.columns, 1);
        m->multiply(one.row(*m, 0), 1, 0, s.rows, &alone[size_t(t * s.rows)], s.rows);
      }
      for (int64_t count = 1; count <= kCount; count++)
        for (int64_t first : {int64_t(0), kCount - count}) {
          const int64_t stride = s.rows + 3;
          std::vector<float> y(size_t(count * stride + 1), 5);
          float* at = y.data() + 1;  // not aligned
          int64_t block = m->row_block(), middle = (s.rows / 2 + block - 1) / block * block;
          m->multiply(prepared.row(*m, first), count, 0, middle, at, stride);
          m->multiply(prepared.row(*m, first), count, middle, s.rows, at, stride);
          bool equal = true, untouched = y[0] == 5;
          for (int64_t t = 0; t < count; t++) {
            equal &= same_bits(at + t * stride, &alone[size_t((first + t) * s.rows)], size_t(s.rows));
            for (int64_t n = s.rows; n < stride; n++) untouched &= at[t * stride + n] == 5;
          }
          test::report(equal, __FILE__, __LINE__,
                       std::string(m->describe()) + ": " + std::to_string(count) + " rows differ");
          test::report(untouched, __FILE__, __LINE__, std::string(m->describe()) + ": writes past the range");
        }
    }
}

TEST(any_range_ends_where_it_ends) {
  Random random(5);
  Sample s = make(random, {MLXSHIM_QUANT_AFFINE, 4, 32}, MLXSHIM_DTYPE_F16, 100, 64);
  for (Level level : levels()) {
    auto m = pack(level, s.source());
    std::vector<float> x = random.normals(3 * s.columns), whole = product(*m, x, 3);
    Prepared prepared(*m, x.data(), s.columns, 3);
    for (int64_t begin = 0; begin < s.rows; begin += m->row_block())
      for (int64_t end = begin; end <= s.rows; end++)
        for (int64_t count : {1, 3}) {
          std::vector<float> y(size_t(3 * s.rows), 9);
          m->multiply(prepared.row(*m, 0), count, begin, end, y.data(), s.rows);
          bool right = true;
          for (int64_t t = 0; t < 3; t++)
            for (int64_t n = 0; n < s.rows; n++) {
              size_t i = size_t(t * s.rows + n);
              right &= y[i] == (t < count && n >= begin && n < end ? whole[i] : 9);
            }
          test::report(right, __FILE__, __LINE__, "range " + std::to_string(begin) + ".." + std::to_string(end));
        }
  }
}

TEST(many_tokens) {  // more than go through a piece at once
  Random random(6);
  for (Format format : {Format{MLXSHIM_QUANT_AFFINE, 4, 64}, Format{MLXSHIM_QUANT_AFFINE, 8, 128}, Format{0, 0, 0}}) {
    Sample s = make(random, format, MLXSHIM_DTYPE_BF16, 33, 640);
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      constexpr int64_t kCount = 300;
      std::vector<float> x = random.normals(kCount * s.columns), all = product(*m, x, kCount);
      check_against_doubles(s, level, *m, x, kCount, all, 0);
      for (int64_t t : {0, 127, 128, 255, 299}) {
        std::vector<float> one(x.begin() + t * s.columns, x.begin() + (t + 1) * s.columns);
        CHECK(same_bits(product(*m, one, 1).data(), &all[size_t(t * s.rows)], size_t(s.rows)));
      }
    }
  }
}

TEST(members_of_a_stack) {
  Random random(7);
  for (Format format : {Format{MLXSHIM_QUANT_AFFINE, 4, 32}, Format{MLXSHIM_QUANT_AFFINE, 5, 64},
                        Format{MLXSHIM_QUANT_MXFP8, 8, 32}, Format{MLXSHIM_QUANT_NVFP4, 4, 16}, Format{0, 0, 0}}) {
    Sample s = make(random, format, MLXSHIM_DTYPE_F16, 21, 128, 5);
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      std::vector<float> x = random.normals(2 * s.columns), row(size_t(s.columns));
      for (int64_t member = 0; member < s.members; member++)
        check_against_doubles(s, level, *m, x, 2, product(*m, x, 2, member), member);
      m->row(3 * s.rows + 20, row.data());
      CHECK_NEAR(row[5], s.values[size_t((3 * s.rows + 20) * s.columns + 5)], 1e-6);
    }
  }
}

TEST(special_activations) {
  Random random(8);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Sample& s : samples(random, {{18, 160}}))
    for (Level level : levels()) {
      auto m = pack(level, s.source());
      auto finite = [](float v) { return std::isfinite(v); };
      // Rows: ordinary, NaN, infinite, minus infinite, zero, ordinary. The bad ones do not touch the others.
      std::vector<float> x = random.normals(6 * s.columns);
      std::vector<float> good(x.begin(), x.begin() + s.columns);
      std::copy(good.begin(), good.end(), x.begin() + 5 * s.columns);
      x[size_t(s.columns + 37)] = nan;
      x[size_t(2 * s.columns + 3)] = inf;
      x[size_t(4 * s.columns - 1)] = -inf;
      std::fill_n(x.begin() + 4 * s.columns, s.columns, 0.0f);
      std::vector<float> y = product(*m, x, 6), want = product(*m, good, 1);
      auto row = [&](int t) { return y.begin() + t * s.rows; };
      CHECK(same_bits(&*row(0), want.data(), want.size()));
      for (int t : {1, 2, 3}) CHECK(std::none_of(row(t), row(t + 1), finite));
      CHECK(std::all_of(row(4), row(5), [](float v) { return v == 0; }));
      CHECK(same_bits(&*row(5), want.data(), want.size()));
      // Tiny and huge ones, alone and beside each other.
      for (float size : {1e-45f, 1e-40f, 1e-37f, 1e-30f, 1e30f}) {
        std::vector<float> scaled = random.normals(s.columns);
        for (float& v : scaled) v *= size;
        if (size < 1) scaled[7] = 1;
        check_against_doubles(s, level, *m, scaled, 1, product(*m, scaled, 1), 0);
        if (size < 1) {
          scaled[7] = size;
          std::vector<float> small = product(*m, scaled, 1);
          CHECK(std::all_of(small.begin(), small.end(), [&](float v) { return std::fabs(v) <= 1e5f * size + 1e-34f; }));
        }
      }
    }
}

// The vector levels do the same operations in the same order.
TEST(vector_levels_agree) {
  Random random(9);
  if (!has(Level::kAvxVnni) && !has(Level::kAvx512)) {
    std::printf("not tested: this processor has one vector level at most\n");
    CHECK(true);
    return;
  }
  for (const Sample& s : samples(random, {{35, 320}})) {
    std::vector<float> x = random.normals(5 * s.columns), first;
    for (Level level : levels()) {
      if (level == Level::kPortable) continue;
      std::vector<float> y = product(*pack(level, s.source()), x, 5);
      if (first.empty()) first = y;
      test::report(same_bits(y.data(), first.data(), y.size()), __FILE__, __LINE__,
                   s.print() + " at " + level_name(level));
    }
  }
}

// 16-bit integers with a scale a group must be far closer to f32 than bf16 activations are. The hardest case is one
// outlier that is all of a group: then sqrt(group) / 128 of bf16's error is to be expected.
TEST(activations_keep_more_than_bf16) {
  Random random(10);
  for (float outlier : {1.0f, 30.0f, 1000.0f})
    for (int64_t group : {32, 64, 128}) {
      Sample s = make(random, {MLXSHIM_QUANT_AFFINE, 4, group}, MLXSHIM_DTYPE_F16, 64, 512);
      std::vector<float> x = random.normals(s.columns), coarse(x.size());
      for (size_t i = 0; i < x.size(); i += 97) x[i] *= outlier;
      for (size_t i = 0; i < x.size(); i++) coarse[i] = bfloat_to_float(float_to_bfloat(x[i]));
      for (Level level : levels()) {
        std::vector<float> y = product(*pack(level, s.source()), x, 1);
        double ours = 0, bfloats = 0;
        for (int64_t n = 0; n < s.rows; n++) {
          double exact = 0, rounded = 0;
          for (int64_t k = 0; k < s.columns; k++) {
            double w = s.values[size_t(n * s.columns + k)];
            exact += w * x[size_t(k)];
            rounded += w * coarse[size_t(k)];
          }
          ours += (y[size_t(n)] - exact) * (y[size_t(n)] - exact);
          bfloats += (rounded - exact) * (rounded - exact);
        }
        test::report(
            std::sqrt(ours / bfloats) < 0.1, __FILE__, __LINE__,
            std::string(level_name(level)) + ": error " + std::to_string(std::sqrt(ours / bfloats)) + " of bf16's");
      }
    }
}

TEST(prepared_rows_are_shared) {
  Random random(11);
  for (Level level : levels()) {
    auto a = pack(level, make(random, {MLXSHIM_QUANT_AFFINE, 4, 64}, MLXSHIM_DTYPE_F16, 16, 128).source());
    auto b = pack(level, make(random, {MLXSHIM_QUANT_AFFINE, 8, 64}, MLXSHIM_DTYPE_BF16, 48, 128).source());
    auto wider = pack(level, make(random, {MLXSHIM_QUANT_AFFINE, 4, 64}, MLXSHIM_DTYPE_F16, 16, 192).source());
    CHECK(a->prepared_like(*b) && b->prepared_like(*a));
    CHECK(!a->prepared_like(*wider));
    std::vector<float> x = random.normals(128), y(48);
    Prepared by_a(*a, x.data(), 128, 1);
    b->multiply(by_a.row(*a, 0), 1, 0, 48, y.data(), 48);
    CHECK(same_bits(y.data(), product(*b, x, 1).data(), 48));
  }
}

TEST(threads_share_a_matrix) {
  Random random(12);
  Sample s = make(random, {MLXSHIM_QUANT_AFFINE, 4, 32}, MLXSHIM_DTYPE_F16, 192, 256);
  for (Level level : levels()) {
    auto m = pack(level, s.source());
    std::vector<float> x = random.normals(20 * s.columns), whole = product(*m, x, 20), y(whole.size());
    Prepared prepared(*m, x.data(), s.columns, 20);
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < 3; i++)
      threads.emplace_back([&, i] { m->multiply(prepared.row(*m, 0), 20, i * 64, (i + 1) * 64, y.data(), s.rows); });
    for (std::thread& t : threads) t.join();
    CHECK(same_bits(y.data(), whole.data(), y.size()));
  }
}

TEST(formats_that_do_not_exist_are_refused) {
  Random random(13);
  MatrixSource good = make(random, {MLXSHIM_QUANT_AFFINE, 4, 32}, MLXSHIM_DTYPE_F16, 4, 64).source();
  auto refused = [&](auto change) {
    MatrixSource s = good;
    change(s);
    try {
      pack(level(), s);
      return false;
    } catch (const Status& e) {
      return e.code == MLXSHIM_ERR_UNSUPPORTED;
    }
  };
  CHECK(refused([](MatrixSource& s) { s.bits = 7; }));
  CHECK(refused([](MatrixSource& s) { s.group = 16; }));
  CHECK(refused([](MatrixSource& s) { s.columns = 72; }));
  CHECK(refused([](MatrixSource& s) { s.scale_dtype = MLXSHIM_DTYPE_U8; }));
  CHECK(refused([](MatrixSource& s) { s.mode = MLXSHIM_QUANT_MXFP4; }));
  CHECK(refused([](MatrixSource& s) { s.mode = MLXSHIM_QUANT_NONE; }));
}
