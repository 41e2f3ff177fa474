// A program that is ready to run here.
#pragma once

#include "context.h"
#include "plan.h"
#include "state.h"
#include "weights.h"

namespace mlxcel::native {

class NativeProgram : public LoadedProgram {
 public:
  NativeProgram(const VectorKernels& vectors, int threads, std::shared_ptr<Arena> arena, Program program,
                std::shared_ptr<NativeWeights> weights, std::shared_ptr<NativeState> state);

  std::vector<std::shared_ptr<Value>> run(const RunArguments& run) override;

  // The stages, a line each.
  std::string describe() const override;

 private:
  // Makes room in the state for what the run writes, and notes whose token each one is.
  void open_batch(const RunArguments& run);
  // Says where each place begins in this run.
  void bind(const RunArguments& run, char* arena);
  char* reserve(const RunArguments* run);
  std::shared_ptr<Value> output(size_t i, const Counts& counts) const;

  const VectorKernels& vectors_;
  const int threads_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<NativeWeights> weights_;  // matrices lie there
  Plan plan_;
  size_t scratch_bytes_ = 0;    // of a thread
  std::vector<int64_t> times_;  // nanoseconds of each stage, of all runs; empty: nobody asks
  int64_t runs_ = 0;
  std::vector<char*> places_;
  std::vector<int32_t> sequence_of_;
};

}  // namespace mlxcel::native
