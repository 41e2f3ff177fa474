// A program that is ready to run on MLX: weights are looked up, functions chosen, constants made.
#pragma once

#include "fuse.h"
#include "step.h"
#include "weights.h"

namespace mlxcel {

class MlxProgram : public LoadedProgram {
 public:
  MlxProgram(const MlxContext& context, Program program, const MlxWeights& weights, std::shared_ptr<MlxState> state);

  std::vector<std::shared_ptr<Value>> run(const RunArguments& run) override;

 private:
  struct Ready {
    OpFunction run;
    Prepared prepared;
  };

  // Whether the op works on no rows at all in this run.
  bool is_idle(const Op& op, const RunArguments& run) const;
  void find_last_reads();
  void build(Step& step) const;

  const MlxContext& context_;  // which outlives what is made from it
  const mx::Stream stream_;
  std::vector<mx::array> weights_;
  std::vector<Ready> ready_;           // by op
  std::vector<Fusion> fusions_;        // on a GPU
  std::vector<const Fusion*> fused_;   // by op, null: it is in none
  std::vector<std::vector<int32_t>> last_read_;  // by op, the values that no later one reads
  std::vector<int64_t> written_;       // layers of the state
  int64_t largest_matrix_ = 0;         // dequantized, in bytes
};

class MlxValue : public Value {
 public:
  MlxValue(mx::array array, mx::Stream stream)
      : Value(int64_t(array.nbytes())), array_(std::move(array)), stream_(stream) {}

  void read(void* to) override;

 private:
  mx::array array_;
  mx::Stream stream_;
};

}  // namespace mlxcel
