// One primitive each for what MLX has no CPU kernel for: there its fast ops fall back to 7 to 20 small ones, at 5 to
// 20 us apiece, which for a small model is as much time as its matrix products take. f32 on the CPU only.
#pragma once

#include <optional>

#include "convert.h"

namespace mlxcel {

// Whether the functions below take this array.
inline bool takes_cpu_ops(const mx::array& x, mx::Stream stream) {
  return stream.device == mx::Device::cpu && x.dtype() == mx::float32 && x.ndim() <= 3;
}

// x [.., D], w f32 [D] or none.
mx::array cpu_rms_norm(const mx::array& x, const std::optional<mx::array>& w, float eps, mx::Stream stream);

// The turn per position of each pair, f32 [dims/2]: 1 / periods, or those of `base` where there are none. Computed with
// MLX's own exp, whose last bit decides at which angle position 30,000 ends up.
mx::array rope_frequencies(int dims, float base, const std::optional<mx::array>& periods, mx::Stream stream);

struct RopeFacts {
  int dims;
  bool traditional;
  float scale, mscale;
};
// x [T, heads, D], positions i32 [T], frequencies as above.
mx::array cpu_rope(const mx::array& x, const mx::array& positions, const mx::array& frequencies, RopeFacts facts,
                   mx::Stream stream);

// gate, up of one shape.
mx::array cpu_swiglu(const mx::array& gate, const mx::array& up, mx::Stream stream);

// x [.., D] times an affine matrix, packed u32 [N, ..] with scales and biases f32 [N, D / group] -> [.., N]. Where x has
// several rows it is several times faster than MLX's own product, which unpacks the matrix once for each.
mx::array cpu_quantized_matmul(const mx::array& x, const mx::array& packed, const mx::array& scales,
                               const mx::array& biases, int group, int bits, mx::Stream stream);

// logits [R, V], settings f32 [R, 5] -> i32 [R], as MLXSHIM_OP_SAMPLE.
mx::array cpu_sample(const mx::array& logits, const mx::array& settings, mx::Stream stream);

}  // namespace mlxcel
