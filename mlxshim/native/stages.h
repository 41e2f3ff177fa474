// The kinds of stages.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "row_ops.h"
#include "step.h"

namespace mlxcel::native {

using StagePointer = std::unique_ptr<Stage>;

// Row ops that follow each other, applied to a few rows at a time while those are in the cache.
class RowStage : public Stage {
 public:
  explicit RowStage(Extent extent) : extent(extent) {}

  int parts(const Program& program, const RunArguments& run, int threads) const override;
  void run(const Step& step, Part part) const override;
  void finish(const Step& step) const override;
  std::string describe() const override;
  size_t scratch() const override;

  const Extent extent;
  std::vector<RowOpPointer> ops;

 private:
  void run_rows(const Step& step, int64_t begin, int64_t end) const;
};

// out = x w^T (+ bias) (+ residual), or, with gated, silu(first half) * second half of that.
struct Product {
  Extent extent;
  int64_t vectors = 1;  // of a row, each multiplied by itself
  const Matrix* matrix = nullptr;
  Rows prepared;
  const float* bias = nullptr;
  std::optional<Rows> residual;
  std::optional<Rows> halves;  // gated: where both halves go
  Rows out;
};
StagePointer make_product(Product product);

// out[t][i] = x[t] or x[t][i] times the matrix of the expert that indices[t][i] names.
struct ExpertProduct {
  Extent extent;
  int64_t recorded = 1;  // the most rows
  int64_t used = 1;      // experts of a row
  bool shared = true;    // one x for all experts of a row
  const Matrix* matrix = nullptr;
  Rows prepared, indices;
  const float* bias = nullptr;  // [experts][rows]
  Rows out;
};
StagePointer make_expert_product(ExpertProduct product);

struct Attention {
  int64_t layer = 0, heads = 0;
  float scale = 1;
  Rows q, out;
};
StagePointer make_attention(Attention attention, const StateShape::Layer& layer);

}  // namespace mlxcel::native
