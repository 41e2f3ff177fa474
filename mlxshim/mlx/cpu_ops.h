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

struct RopeFacts {
  int dims;
  bool traditional;
  float base, scale, mscale;  // base counts where there are no periods
};
// x [T, heads, D], positions i32 [T], periods f32 [dims/2] or none. Computed with the roundings of MLX's own.
mx::array cpu_rope(const mx::array& x, const mx::array& positions, const std::optional<mx::array>& periods,
                   RopeFacts facts, mx::Stream stream);

// gate, up of one shape.
mx::array cpu_swiglu(const mx::array& gate, const mx::array& up, mx::Stream stream);

}  // namespace mlxcel
