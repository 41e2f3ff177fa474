#include "context.h"

#include <algorithm>

#include "program_native.h"
#include "state.h"
#include "status.h"
#include "threads.h"
#include "topology.h"
#include "weights.h"

namespace mlxcel {

namespace native {

NativeContext::NativeContext(int64_t threads)
    : level_(level()),
      threads_(threads > 0 ? int(std::min(threads, int64_t(kMostThreads))) : default_threads()),
      meter_(std::make_shared<Meter>()),
      arena_(std::make_shared<Arena>(meter_)) {}

void NativeContext::device_facts(mlxshim_device_info& info) {
  const SystemMemory memory = read_memory();
  info.device = MLXSHIM_DEVICE_CPU;
  info.device_index = 0;
  info.total_memory = memory.total;
  info.free_memory = memory.free;
  info.compute_major = 0;
  info.compute_minor = 0;
  info.activation_dtype = MLXSHIM_DTYPE_F32;
}

void NativeContext::memory(mlxshim_memory_info& info) {
  info.active = meter_->active();
  info.peak = meter_->peak();
  info.cached = 0;
  info.host = 0;
}

std::shared_ptr<Weights> NativeContext::make_weights() {
  return std::make_shared<NativeWeights>(level_, threads_, meter_);
}

std::shared_ptr<State> NativeContext::make_state(StateShape shape) {
  return std::make_shared<NativeState>(std::move(shape), meter_);
}

std::shared_ptr<LoadedProgram> NativeContext::make_program(Program program, std::shared_ptr<Weights> weights,
                                                           std::shared_ptr<State> state) {
  return std::make_shared<NativeProgram>(vector_kernels(level_), threads_, arena_, std::move(program),
                                         std::static_pointer_cast<NativeWeights>(std::move(weights)),
                                         std::static_pointer_cast<NativeState>(std::move(state)));
}

}  // namespace native

std::shared_ptr<Context> open_context(const mlxshim_context_params& params) {
  if (params.device != MLXSHIM_DEVICE_CPU || params.device_index != 0)
    fail(MLXSHIM_ERR_UNSUPPORTED, "this library has no ", params.device == MLXSHIM_DEVICE_CUDA ? "CUDA device" : "CPU",
         " number ", params.device_index);
  return std::make_shared<native::NativeContext>(params.threads);
}

}  // namespace mlxcel
