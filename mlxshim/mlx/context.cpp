#include "context.h"

#include <optional>

#include "program_mlx.h"
#include "state.h"
#include "status.h"
#include "weights.h"

namespace mlxcel {

namespace {

// What MLX keeps of freed memory on the CPU: the temporaries of a step come and go, more is waste.
constexpr size_t kCpuCache = size_t(64) << 20;

std::optional<size_t> number(const mx::Device& device, const char* key) {
  const auto& info = mx::device_info(device);
  auto it = info.find(key);
  if (it == info.end() || !std::holds_alternative<size_t>(it->second)) return std::nullopt;
  return std::get<size_t>(it->second);
}

}  // namespace

void MlxContext::device_facts(mlxshim_device_info& info) {
  info.device = on_gpu() ? MLXSHIM_DEVICE_CUDA : MLXSHIM_DEVICE_CPU;
  info.device_index = device.index;
  info.total_memory = int64_t(number(device, "total_memory").value_or(number(device, "memory_size").value_or(0)));
  info.free_memory = int64_t(number(device, "free_memory").value_or(0));
  info.compute_major = int64_t(number(device, "compute_capability_major").value_or(0));
  info.compute_minor = int64_t(number(device, "compute_capability_minor").value_or(0));
  // MLX's CPU kernels run half types 10 to 50 times slower than f32, and sum in them.
  info.activation_dtype = on_gpu() ? MLXSHIM_DTYPE_BF16 : MLXSHIM_DTYPE_F32;
}

void MlxContext::memory(mlxshim_memory_info& info) {
  info.active = int64_t(mx::get_active_memory());
  info.peak = int64_t(mx::get_peak_memory());
  info.cached = int64_t(mx::get_cache_memory());
}

std::shared_ptr<Weights> MlxContext::make_weights() { return std::make_shared<MlxWeights>(*this); }

std::shared_ptr<State> MlxContext::make_state(StateShape shape) {
  return std::make_shared<MlxState>(*this, std::move(shape));
}

std::shared_ptr<LoadedProgram> MlxContext::make_program(Program program, std::shared_ptr<Weights> weights,
                                                        std::shared_ptr<State> state) {
  return std::make_shared<MlxProgram>(*this, std::move(program), static_cast<const MlxWeights&>(*weights),
                                      std::static_pointer_cast<MlxState>(std::move(state)));
}

std::shared_ptr<Context> open_context(const mlxshim_context_params& params) {
  mx::Device device(params.device == MLXSHIM_DEVICE_CUDA ? mx::Device::gpu : mx::Device::cpu, int(params.device_index));
  if (!mx::is_available(device))
    fail(MLXSHIM_ERR_UNSUPPORTED, "this library has no ",
         params.device == MLXSHIM_DEVICE_CUDA ? "CUDA device number " : "CPU number ", params.device_index);
  if (device == mx::Device::cpu) mx::set_cache_limit(kCpuCache);
  // Where an MLX function of ours takes no stream, it takes the thread's default device.
  mx::set_default_device(device);
  return std::make_shared<MlxContext>(device);
}

}  // namespace mlxcel
