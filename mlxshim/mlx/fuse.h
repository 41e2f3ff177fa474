// Ops of a program that are run as one on a GPU, where MLX's time on the host for each op is longer than the kernels'.
#pragma once

#include <functional>
#include <vector>

#include "step.h"

namespace mlxcel {

struct Fusion {
  std::vector<size_t> members;  // op numbers, rising; the last one's turn is when it is run
  std::function<void(Step&)> run;
  int64_t most_sequences;  // for steps of so many it is run at all, else the ops one by one
};

// What can be fused; no op is in two of them. The state is null where the program has none.
std::vector<Fusion> find_fusions(const Program& program, const StateShape* state);

}  // namespace mlxcel
