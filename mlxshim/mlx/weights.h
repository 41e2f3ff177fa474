// Weights as MLX arrays.
#pragma once

#include <vector>

#include "context.h"

namespace mlxcel {

class MlxWeights : public Weights {
 public:
  explicit MlxWeights(const MlxContext& context) : gpu_(context.on_gpu()), stream_(context.stream) {}

  const mx::array& at(size_t index) const { return arrays_[index]; }

 protected:
  void load(const WeightFacts& facts, const WeightSource& source) override;

 private:
  bool gpu_;
  mx::Stream stream_;
  std::vector<mx::array> arrays_;
};

// Both ways to load, for the tests of the second on a machine without a GPU.
// Reads straight into the array's own memory, converting piece by piece.
mx::array load_to_host(const WeightFacts& facts, const WeightSource& source);
// Through MLX's Load, which reads to the host and copies to the device, so that nothing of it stays host memory.
mx::array load_to_device(const WeightFacts& facts, const WeightSource& source, mx::Stream stream);

}  // namespace mlxcel
