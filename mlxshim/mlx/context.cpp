#include "context.h"

#include <algorithm>
#include <optional>

#include "cuda/gpu.h"
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

MlxContext::MlxContext(mx::Device device, int64_t memory_limit)
    : device(device),
      stream(mx::default_stream(device)),
      memory_limit_(memory_limit),
      watch_(on_gpu() ? gpu_watch(device) : nullptr),
      pace_(on_gpu() ? gpu_pace(stream) : nullptr) {}

MlxContext::~MlxContext() = default;

void MlxContext::device_facts(mlxshim_device_info& info) {
  info.device = on_gpu() ? MLXSHIM_DEVICE_CUDA : MLXSHIM_DEVICE_CPU;
  info.device_index = device.index;
  if (on_gpu()) {
    const GpuMemory memory = gpu_memory(device);
    info.total_memory = memory.total;
    info.free_memory = memory.free;
  } else {
    info.total_memory = int64_t(number(device, "total_memory").value_or(number(device, "memory_size").value_or(0)));
    info.free_memory = int64_t(number(device, "free_memory").value_or(0));
  }
  info.compute_major = int64_t(number(device, "compute_capability_major").value_or(0));
  info.compute_minor = int64_t(number(device, "compute_capability_minor").value_or(0));
  // MLX's CPU kernels run half types 10 to 50 times slower than f32, and sum in them.
  info.activation_dtype = on_gpu() ? MLXSHIM_DTYPE_BF16 : MLXSHIM_DTYPE_F32;
}

void MlxContext::memory(mlxshim_memory_info& info) {
  info.active = int64_t(mx::get_active_memory());
  info.peak = int64_t(mx::get_peak_memory());
  info.cached = int64_t(mx::get_cache_memory());
  info.host = 0;
  if (!on_gpu()) return;
  const GpuUse own = gpu_use();
  info.active += own.lasting + own.passing;
  info.peak += own.peak;
  for (const auto& set : weights_)
    if (auto held = set.lock()) info.host += held->host_bytes();
}

void MlxContext::reset_peak() {
  mx::reset_peak_memory();
  if (on_gpu()) gpu_reset_peak();
}

void MlxContext::trim() {
  mx::clear_cache();
  if (on_gpu()) gpu_trim(device);
}

int64_t MlxContext::in_use() const {
  const GpuUse own = on_gpu() ? gpu_use() : GpuUse{};
  return int64_t(mx::get_active_memory()) + own.lasting + own.passing;
}

void MlxContext::reserve(int64_t bytes) const {
  if (memory_limit_ == 0) return;
  if (in_use() + bytes > memory_limit_) {
    drain();  // what steps have taken for a while is given back
    mx::clear_cache();
    if (on_gpu()) gpu_trim(device);
  }
  if (const int64_t used = in_use(); used + bytes > memory_limit_)
    fail(MLXSHIM_ERR_MEMORY, "out of memory: ", bytes, " bytes more than the ", used, " in use exceed the limit of ",
         memory_limit_);
  // Above this MLX gives back what it keeps for reuse, and waits for what is running before it begins more.
  constexpr int64_t kLeast = int64_t(256) << 20;
  const GpuUse own = on_gpu() ? gpu_use() : GpuUse{};
  mx::set_memory_limit(size_t(std::max(memory_limit_ - own.lasting - own.most_passing, kLeast)));
}

int64_t MlxContext::piece() const {
  // What is left when a step has all that it may need beside its pieces, of which there are three or four.
  constexpr int64_t kRest = int64_t(2) << 30, kMost = int64_t(512) << 20;
  const int64_t room = memory_limit_ > 0 ? memory_limit_ - in_use() - kRest : kMost * 4;
  return std::min(kLeastPiece + std::max<int64_t>(room, 0) / 4, kMost);
}

void MlxContext::drain() const { on_gpu() ? gpu_wait(stream) : mx::synchronize(stream); }

void MlxContext::begin() {
  if (watch_) watch_->begin();
}

void MlxContext::end() noexcept {
  if (watch_) watch_->end();
}

std::string MlxContext::fault() { return on_gpu() ? gpu_fault(device) : std::string(); }

std::shared_ptr<Weights> MlxContext::make_weights() {
  auto made = std::make_shared<MlxWeights>(*this);
  weights_.push_back(made);
  return made;
}

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
    fail(MLXSHIM_ERR_UNSUPPORTED, "MLX finds no ",
         params.device == MLXSHIM_DEVICE_CUDA ? "CUDA device number " : "CPU number ", params.device_index);
  if (device == mx::Device::cpu) mx::set_cache_limit(kCpuCache);
  // Where an MLX function of ours takes no stream, it takes the thread's default device.
  mx::set_default_device(device);
  if (device == mx::Device::gpu) gpu_open(device);
  return std::make_shared<MlxContext>(device, params.memory_limit);
}

}  // namespace mlxcel
