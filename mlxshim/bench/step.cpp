// What the library adds to MLX: a decode step of SmolLM2-135M's shape as a C++ loop over MLX's ops, and the same step
// through the ABI, in turns; medians. Both are double-buffered: a step is enqueued before the token before it is read.
// usage: step [rounds]
#include <mlx/mlx.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "llama_shape.h"

namespace mx = mlx::core;
using namespace bench;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Processor time of all threads of this process: what is left of a comparison on a busy machine.
double cpu() { return double(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Quantized {
  mx::array w, scales, biases;
  int bits;
  explicit Quantized(const Matrix& m)
      : w(m.words.data(), {int(m.rows), int(m.width * m.bits / 32)}, mx::uint32),
        scales(m.scales.data(), {int(m.rows), int(m.width / kGroup)}),
        biases(m.biases.data(), {int(m.rows), int(m.width / kGroup)}),
        bits(int(m.bits)) {}
  mx::array operator()(const mx::array& x) const {
    return mx::quantized_matmul(x, w, scales, biases, true, int(kGroup), bits);
  }
};

// The loop, written as one writes it for MLX: a cache that is updated by slices, one head layout per tensor.
class Loop {
 public:
  explicit Loop(const Model& model)
      : table_(model.embedding), norm_(model.norm.data(), {int(kHidden)}), token_(mx::array({1}, mx::int32)) {
    for (const Layer& l : model.layers) {
      layers_.push_back({Quantized(l.qkv), Quantized(l.o), Quantized(l.gate_up), Quantized(l.down)});
      keys_.push_back(mx::zeros({1, int(kKvHeads), kCapacity, int(kDim)}));
      values_.push_back(mx::zeros({1, int(kKvHeads), kCapacity, int(kDim)}));
    }
    mx::eval(keys_);
    mx::eval(values_);
  }

  // Enqueues a step and returns its token.
  mx::array step(int at) {
    auto x = mx::dequantize(mx::take(table_.w, token_, 0), mx::take(table_.scales, token_, 0),
                            mx::take(table_.biases, token_, 0), int(kGroup), table_.bits);
    for (size_t l = 0; l < layers_.size(); l++) {
      auto& w = layers_[l];
      auto qkv = w.qkv(mx::fast::rms_norm(x, norm_, float(kEps)));
      auto part = [&](int64_t start, int64_t heads) {
        auto p = mx::slice(qkv, {0, int(start * kDim)}, {1, int((start + heads) * kDim)});
        return mx::reshape(p, {1, int(heads), 1, int(kDim)});
      };
      auto q = mx::fast::rope(part(0, kHeads), int(kDim), false, float(kBase), 1.f, at);
      auto k = mx::fast::rope(part(kHeads, kKvHeads), int(kDim), false, float(kBase), 1.f, at);
      auto update = [&](mx::array& cache, const mx::array& row) {
        cache = mx::slice_update(cache, row, mx::Shape{0, 0, at, 0}, mx::Shape{1, int(kKvHeads), at + 1, int(kDim)});
        return mx::slice(cache, {0, 0, 0, 0}, {1, int(kKvHeads), at + 1, int(kDim)});
      };
      auto keys = update(keys_[l], k), values = update(values_[l], part(kHeads + kKvHeads, kKvHeads));
      auto y = mx::fast::scaled_dot_product_attention(q, keys, values, float(kScale));
      x = mx::add(x, w.o(mx::reshape(y, {1, int(kHeads * kDim)})));
      auto wide = w.gate_up(mx::fast::rms_norm(x, norm_, float(kEps)));
      auto gate = mx::slice(wide, {0, 0}, {1, int(kFfn)}), up = mx::slice(wide, {0, int(kFfn)}, {1, int(2 * kFfn)});
      x = mx::add(x, w.down(mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), up)));
    }
    token_ = mx::argmax(table_(mx::fast::rms_norm(x, norm_, float(kEps))), -1);
    mx::async_eval(token_);
    return token_;
  }

 private:
  static constexpr int kCapacity = 1024;
  struct Weights {
    Quantized qkv, o, gate_up, down;
  };
  Quantized table_;
  mx::array norm_, token_;
  std::vector<Weights> layers_;
  std::vector<mx::array> keys_, values_;
};

class Abi {
 public:
  explicit Abi(const Model& model)
      : state_(session_.make_state(1, 1024,
                                   std::vector<mlxshim_layer>(size_t(kLayers), test::layer(kKvHeads, kDim, kDim)))),
        program_(session_.load(decode_program(session_, model, 1), state_)) {}

  int64_t step(int32_t at) {
    int32_t id = at == 0 ? 1 : MLXSHIM_TOKEN_LAST, slot = 0, offsets[2] = {0, 1}, context = at + 1, row = 0;
    std::vector<int64_t> out(1);
    double start = now();
    OK(test::run_raw(program_, {1, 1, 1}, {&id, &slot, &at, &slot, offsets, &context, &row, &slot}, out));
    host.push_back(now() - start);
    return out[0];
  }
  int32_t token(int64_t value) { return test::read<int32_t>(value, 1)[0]; }

  std::vector<double> host;

 private:
  test::Session session_;
  int64_t state_, program_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9, per_round = 12;
  mx::set_default_device(mx::Device::cpu);
  Model model;
  Loop loop(model);
  Abi abi(model);
  std::vector<double> loop_times, abi_times, loop_cpu, abi_cpu;
  std::vector<int32_t> loop_tokens, abi_tokens;
  int at = 0;
  for (int round = 0; round < rounds; round++, at += per_round) {
    // Within a round each side runs its steps double-buffered; then it is the other's turn, at the same positions.
    double start = now(), used = cpu();
    mx::array pending = loop.step(at);
    for (int i = 1; i < per_round; i++) {
      mx::array next = loop.step(at + i);
      loop_tokens.push_back(int32_t(pending.item<uint32_t>()));
      pending = next;
    }
    loop_tokens.push_back(int32_t(pending.item<uint32_t>()));
    if (round > 0) loop_times.push_back((now() - start) / per_round), loop_cpu.push_back((cpu() - used) / per_round);

    start = now(), used = cpu();
    int64_t value = abi.step(at);
    for (int i = 1; i < per_round; i++) {
      int64_t next = abi.step(at + i);
      abi_tokens.push_back(abi.token(value));
      value = next;
    }
    abi_tokens.push_back(abi.token(value));
    if (round > 0) abi_times.push_back((now() - start) / per_round), abi_cpu.push_back((cpu() - used) / per_round);
  }
  double l = median(loop_times) * 1e6, a = median(abi_times) * 1e6;
  std::printf("loop over MLX's ops %.0f us/step, through the ABI %.0f us/step: %+.0f us, %+.1f %%\n", l, a, a - l,
              100 * (a - l) / l);
  std::printf("processor time: %.0f and %.0f us/step\n", median(loop_cpu) * 1e6, median(abi_cpu) * 1e6);
  std::printf("enqueueing a step takes %.0f us; %s\n", median(abi.host) * 1e6,
              loop_tokens == abi_tokens ? "same tokens" : "other tokens");
  std::fflush(stdout);
  return loop_tokens == abi_tokens ? 0 : 1;
}
