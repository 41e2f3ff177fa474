// The context on MLX: a device and the stream of the thread that opened it.
#pragma once

#include "backend.h"
#include "convert.h"

namespace mlxcel {

class MlxWeights;

class MlxContext : public Context {
 public:
  MlxContext(mx::Device device, int64_t memory_limit)
      : device(device), stream(mx::default_stream(device)), memory_limit_(memory_limit) {}

  bool on_gpu() const { return device == mx::Device::gpu; }

  void device_facts(mlxshim_device_info& info) override;
  void memory(mlxshim_memory_info& info) override;
  void reset_peak() override;
  void trim() override;
  void synchronize() override { mx::synchronize(stream); }
  std::shared_ptr<Weights> make_weights() override;
  std::shared_ptr<State> make_state(StateShape shape) override;
  std::shared_ptr<LoadedProgram> make_program(Program program, std::shared_ptr<Weights> weights,
                                              std::shared_ptr<State> state) override;

  // Throws MLXSHIM_ERR_MEMORY where so many bytes more would be above the limit.
  void reserve(int64_t bytes) const;

  const mx::Device device;
  const mx::Stream stream;

 private:
  int64_t memory_limit_;
  std::vector<std::weak_ptr<MlxWeights>> weights_;
};

}  // namespace mlxcel
