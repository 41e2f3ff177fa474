// Weights as MLX arrays.
#pragma once

#include <vector>

#include "context.h"

namespace mlxcel {

class MlxWeights : public Weights {
 public:
  explicit MlxWeights(const MlxContext& context) : context_(context) {}

  const mx::array& at(size_t index) const { return arrays_[index]; }
  // On a GPU: how much of them is not in its memory.
  int64_t host_bytes() const;

 protected:
  void load(const WeightFacts& facts, const WeightSource& source) override;

 private:
  const MlxContext& context_;  // which outlives what is made from it
  std::vector<mx::array> arrays_;
};

// Reads straight into the array's own memory, converting piece by piece.
mx::array load_to_host(const WeightFacts& facts, const WeightSource& source);

}  // namespace mlxcel
