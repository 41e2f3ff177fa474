// Sampling on the host, as MLXSHIM_OP_SAMPLE defines it, in double precision.
#pragma once

#include <cstdint>
#include <span>

namespace mlxcel {

struct SampleSettings {
  double temperature, top_k, top_p, min_p, u;
};

// The token that the settings choose of one row of logits. NaN counts as the lowest logit. Sorts no more of the row
// than the choice needs.
int32_t sample_row(std::span<const float> logits, const SampleSettings& settings);

}  // namespace mlxcel
