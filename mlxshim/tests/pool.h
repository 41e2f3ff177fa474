// A state that was filled to some size, and decode steps near its beginning.
#pragma once

#include <algorithm>
#include <chrono>

#include "abi.h"

namespace test {

class Pool {
 public:
  static constexpr int64_t kLayers = 8, kHeads = 2, kDim = 64, kChunk = 512;

  // Writes `rows` rows to slot 0, so that its memory is that large.
  explicit Pool(int64_t rows)
      : state_(session_.make_state(1, rows, std::vector<mlxshim_layer>(size_t(kLayers), layer(kHeads, kDim, kDim)))),
        fill_(program(kChunk, false)),
        step_(program(1, true)) {
    std::vector<float> data(size_t(kChunk * kHeads * kDim), 0.5f);
    for (int64_t at = 0; at < rows; at += kChunk) OK(run(fill_, data, at, kChunk, nullptr));
    OK(mlxshim_synchronize(session_.context));
  }

  int64_t bytes() const {
    mlxshim_state_info info{sizeof info, 0};
    OK(mlxshim_state_facts(state_, &info));
    return info.bytes;
  }

  struct Result {
    double median_us, best_us;
    int64_t extra_bytes;  // the most memory during the steps, over that before them
  };

  // Steps that begin at position 8, each enqueued before the one before it is read.
  Result measure(int steps) {
    std::vector<float> data(size_t(kHeads * kDim), 0.25f);
    int64_t pending = 0;
    OK(run(step_, data, 8, 1, &pending));  // shortens the sequence
    OK(mlxshim_synchronize(session_.context));
    OK(mlxshim_memory_trim(session_.context));
    OK(mlxshim_memory_reset_peak(session_.context));
    const int64_t before = memory().active;
    std::vector<double> times;
    for (int i = 1; i <= steps; i++) {
      auto start = std::chrono::steady_clock::now();
      int64_t next = 0;
      OK(run(step_, data, 8 + i, 1, &next));
      read<float>(pending, kHeads * kDim);
      pending = next;
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    OK(mlxshim_value_free(pending));
    OK(mlxshim_synchronize(session_.context));
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2], times[0], memory().peak - before};
  }

 private:
  int64_t program(int64_t tokens, bool attend) {
    Builder b;
    b.max_tokens = tokens;
    const Type rows{F32, TOKENS, {tokens, kHeads, kDim}};
    auto x = b.input(rows), slots = b.input({I32, SEQUENCES, {1}}), offsets = b.input({I32, OFFSETS, {2}}),
         contexts = b.input({I32, SEQUENCES, {1}});
    for (int64_t l = 0; l < kLayers; l++) {
      b.op(MLXSHIM_OP_KV_WRITE, {x, x, slots, offsets, contexts}, {l}, {});
      if (attend) x = b.op(MLXSHIM_OP_ATTEND, {x, slots, offsets, contexts}, {l, bits(0.125)}, {rows});
    }
    if (attend) b.output(x);
    return session_.load(b, state_);
  }

  int32_t run(int64_t program, const std::vector<float>& data, int64_t at, int64_t tokens, int64_t* value) {
    int32_t slot = 0, offsets[2] = {0, int32_t(tokens)}, context = int32_t(at + tokens);
    std::vector<int64_t> out(value ? 1 : 0);
    int32_t status = run_raw(program, {tokens, 0, 1}, {data.data(), &slot, offsets, &context}, out);
    if (value) *value = out[0];
    return status;
  }

  mlxshim_memory_info memory() const {
    mlxshim_memory_info info{sizeof info, 0, 0, 0, 0};
    OK(mlxshim_memory(session_.context, &info));
    return info;
  }

  Session session_;
  int64_t state_, fill_, step_;
};

}  // namespace test
