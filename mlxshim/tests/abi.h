// Comfort for tests around the C ABI, and nothing but the ABI: they can be linked with any library that implements it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "mlxshim.h"

namespace test {

constexpr int64_t F32 = MLXSHIM_DTYPE_F32, I32 = MLXSHIM_DTYPE_I32, U32 = MLXSHIM_DTYPE_U32, U8 = MLXSHIM_DTYPE_U8;
constexpr int64_t FIXED = MLXSHIM_AXIS_FIXED, TOKENS = MLXSHIM_AXIS_TOKENS, ROWS = MLXSHIM_AXIS_ROWS,
                  SEQUENCES = MLXSHIM_AXIS_SEQUENCES, OFFSETS = MLXSHIM_AXIS_OFFSETS;

// The 16-bit float nearest to a value, which must not be too large for one. Not every compiler has a type for it.
inline uint16_t half(float value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) return sign;
  int exponent;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, -14);  // of the leading bit; smaller numbers share the smallest one
  double units = std::nearbyint(std::ldexp(std::fabs(double(value)), 10 - exponent));
  return uint16_t(sign | (int(units) + (exponent + 14) * 1024));
}

inline std::string last_error(int64_t context = 0) {
  char text[2000];
  int64_t length = 0;
  if (mlxshim_last_error(context, text, sizeof text, &length) != MLXSHIM_OK) return "?";
  return std::string(text, size_t(std::min<int64_t>(length, sizeof text)));
}

// Checks that a call went well, and prints the sentence where it did not.
inline bool ok(int32_t status, const char* file, int line) {
  if (status == MLXSHIM_OK)
    check(true, file, line, "");
  else
    report(false, file, line, "status " + std::to_string(status) + ": " + last_error());
  return status == MLXSHIM_OK;
}
#define OK(call) test::ok((call), __FILE__, __LINE__)

// Checks that a call fails with a code and leaves a sentence.
inline void fails(int32_t code, int32_t status, const char* file, int line) {
  if (status == code && !last_error().empty())
    check(true, file, line, "");
  else
    report(false, file, line,
           "status " + std::to_string(status) + " (" + last_error() + "), not " + std::to_string(code));
}
#define FAILS(code, call) test::fails((code), (call), __FILE__, __LINE__)

struct Type {
  int64_t dtype, axis;
  std::vector<int64_t> dims;
};

inline int64_t bits(double value) { return std::bit_cast<int64_t>(value); }

// Writes programs down. Values are numbered by kind until words() gives them their numbers.
class Builder {
 public:
  int64_t max_tokens = 1, max_rows = 1, max_sequences = 1;

  int64_t input(Type type) {
    inputs_.push_back(std::move(type));
    return int64_t(inputs_.size()) - 1;
  }
  int64_t weight(int64_t index) {
    weights_.push_back(index);
    return kWeight + int64_t(weights_.size()) - 1;
  }
  // Returns the first output.
  int64_t op(int64_t code, std::vector<int64_t> in, std::vector<int64_t> attributes, std::vector<Type> out) {
    int64_t first = kMade + made_;
    made_ += int64_t(out.size());
    ops_.push_back({code, std::move(in), std::move(attributes), std::move(out)});
    return first;
  }
  void output(int64_t value) { outputs_.push_back(value); }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }

  std::vector<int64_t> words() const {
    std::vector<int64_t> w{MLXSHIM_PROGRAM_MAGIC,
                           MLXSHIM_PROGRAM_VERSION,
                           int64_t(inputs_.size()),
                           int64_t(weights_.size()),
                           int64_t(ops_.size()),
                           int64_t(outputs_.size()),
                           max_tokens,
                           max_rows,
                           max_sequences};
    for (const Type& t : inputs_) put(w, t);
    for (int64_t index : weights_) w.push_back(index);
    for (const Op& op : ops_) {
      w.push_back(op.code);
      w.push_back(int64_t(op.in.size()));
      for (int64_t v : op.in) w.push_back(number(v));
      w.push_back(int64_t(op.attributes.size()));
      for (int64_t a : op.attributes) w.push_back(a);
      w.push_back(int64_t(op.out.size()));
      for (const Type& t : op.out) put(w, t);
    }
    for (int64_t v : outputs_) w.push_back(number(v));
    return w;
  }

 private:
  static constexpr int64_t kWeight = 1 << 20, kMade = 1 << 24;
  struct Op {
    int64_t code;
    std::vector<int64_t> in, attributes;
    std::vector<Type> out;
  };

  int64_t number(int64_t v) const {
    if (v >= kMade) return v - kMade + int64_t(inputs_.size() + weights_.size());
    if (v >= kWeight) return v - kWeight + int64_t(inputs_.size());
    return v;
  }
  static void put(std::vector<int64_t>& w, const Type& t) {
    w.insert(w.end(), {t.dtype, t.axis, int64_t(t.dims.size())});
    w.insert(w.end(), t.dims.begin(), t.dims.end());
  }

  std::vector<Type> inputs_;
  std::vector<int64_t> weights_, outputs_;
  std::vector<Op> ops_;
  int64_t made_ = 0;
};

// Where tests run: the CPU, or the first GPU with MLXSHIM_TEST_DEVICE=cuda.
inline bool on_gpu() {
  const char* device = std::getenv("MLXSHIM_TEST_DEVICE");
  return device && std::string(device) == "cuda";
}
inline mlxshim_context_params test_device() {
  return {sizeof(mlxshim_context_params), on_gpu() ? MLXSHIM_DEVICE_CUDA : MLXSHIM_DEVICE_CPU, 0, 0, 0};
}

// A context on the CPU with a weight set.
class Session {
 public:
  explicit Session(int64_t memory_limit = 0) {
    auto params = test_device();
    params.memory_limit = memory_limit;
    OK(mlxshim_context_create(&params, &context));
    OK(mlxshim_weights_create(context, &weights));
  }
  Session(const Session&) = delete;
  ~Session() { OK(mlxshim_context_destroy(context)); }

  template <class T>
  int64_t add(int64_t dtype, std::vector<int64_t> dims, const std::vector<T>& data, int64_t resident = 0) {
    mlxshim_part part{sizeof part, 0, 0, int64_t(data.size() * sizeof(T)), data.data(), 0, 0, 0, 0};
    mlxshim_weight weight{sizeof weight,        "w",         1, dtype, resident ? resident : dtype,
                          int64_t(dims.size()), dims.data(), 1, &part};
    int64_t index = -1;
    OK(mlxshim_weights_add(weights, &weight, &index));
    return index;
  }

  int64_t make_state(int64_t sequences, int64_t tokens, std::vector<mlxshim_layer> layers, int64_t dtype = F32) {
    mlxshim_state_params params{sizeof params, dtype, sequences, tokens, int64_t(layers.size()), layers.data()};
    int64_t made = 0;
    OK(mlxshim_state_create(context, &params, &made));
    return made;
  }

  // 0 where the program is refused.
  int64_t load(const Builder& builder, int64_t state = 0) {
    int64_t program = 0;
    OK(try_load(builder, state, &program));
    return program;
  }
  int32_t try_load(const Builder& builder, int64_t state, int64_t* program) {
    auto words = builder.words();
    int64_t failed = 0;
    return mlxshim_program_load(context, weights, state, words.data(), int64_t(words.size()), program, &failed);
  }
  // For what a library need not have: 0, with the reason printed, where it says that it is without.
  int64_t load_optional(const Builder& builder, int64_t state = 0) {
    int64_t program = 0;
    int32_t status = try_load(builder, state, &program);
    if (status == MLXSHIM_ERR_UNSUPPORTED)
      std::printf("  left out: %s\n", last_error().c_str());
    else
      OK(status);
    return program;
  }

  int64_t context = 0, weights = 0;
};

inline mlxshim_layer layer(int64_t heads, int64_t key_dim, int64_t value_dim, int64_t window = 0) {
  return {sizeof(mlxshim_layer), heads, key_dim, value_dim, window};
}

struct Live {
  int64_t tokens = 1, rows = 1, sequences = 1;
};

inline int32_t run_raw(int64_t program, Live live, const std::vector<const void*>& inputs,
                       std::vector<int64_t>& outputs) {
  mlxshim_run run{sizeof run,
                  live.tokens,
                  live.rows,
                  live.sequences,
                  int64_t(inputs.size()),
                  inputs.data(),
                  int64_t(outputs.size()),
                  outputs.data()};
  int64_t failed = 0;
  return mlxshim_program_run(program, &run, &failed);
}

template <class T>
std::vector<T> read(int64_t value, int64_t n) {
  std::vector<T> data(static_cast<size_t>(n));
  OK(mlxshim_value_read(value, data.data(), n * int64_t(sizeof(T))));
  OK(mlxshim_value_free(value));
  return data;
}

// Runs a program of one output of n elements.
template <class T>
std::vector<T> run(int64_t program, Live live, const std::vector<const void*>& inputs, int64_t n) {
  std::vector<int64_t> outputs(1);
  if (!OK(run_raw(program, live, inputs, outputs))) return std::vector<T>(size_t(n));
  return read<T>(outputs[0], n);
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float normal() { return normal_(engine_); }
  int64_t below(int64_t n) { return int64_t(engine_() % uint64_t(n)); }
  uint32_t word() { return engine_(); }
  std::vector<float> normals(int64_t n, float scale = 1) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = scale * normal();
    return v;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

// How far a product with a quantized matrix may be off because the library keeps 16 bits of every activation: six
// standard deviations of k roundings to a step of max|x| / 32767, weighted with w. 0 for a library that keeps f32.
inline double activation_rounding(const float* x, const double* w, int64_t k) {
  static const bool rounds = [] {
    char info[512];
    int64_t length = 0;
    return mlxshim_library_info(info, sizeof info, &length) == MLXSHIM_OK &&
           std::string(info, size_t(std::min<int64_t>(length, sizeof info))).find("\"native\"") != std::string::npos;
  }();
  if (!rounds) return 0;
  double largest = 0, squares = 0;
  for (int64_t i = 0; i < k; i++) {
    largest = std::max(largest, std::fabs(double(x[i])));
    squares += w[i] * w[i];
  }
  return 6 * largest / 32767 / std::sqrt(12.0) * std::sqrt(squares);
}

// slack: what each element may be off besides; empty: nothing.
inline void check_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                        const char* file, int line, const std::string& what, const std::vector<double>& slack = {}) {
  report(got.size() == want.size(), file, line, what + ": sizes differ");
  for (size_t i = 0; i < got.size() && i < want.size(); i++) {
    double allowed = tolerance * (1 + std::fabs(want[i])) + (slack.empty() ? 0 : slack[i]);
    if (!(std::fabs(got[i] - want[i]) <= allowed)) {
      report(false, file, line,
             what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                 std::to_string(want[i]));
      return;
    }
  }
  report(true, file, line, what);
}
#define CHECK_CLOSE(got, want, tolerance, what) test::check_close(got, want, tolerance, __FILE__, __LINE__, what)
#define CHECK_PRODUCT(got, want, tolerance, what, slack) \
  test::check_close(got, want, tolerance, __FILE__, __LINE__, what, slack)

}  // namespace test
