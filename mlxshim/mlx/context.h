// The context on MLX: a device and the stream of the thread that opened it.
#pragma once

#include "backend.h"
#include "convert.h"

namespace mlxcel {

class MlxContext : public Context {
 public:
  explicit MlxContext(mx::Device device) : device(device), stream(mx::default_stream(device)) {}

  bool on_gpu() const { return device == mx::Device::gpu; }

  void device_facts(mlxshim_device_info& info) override;
  void memory(mlxshim_memory_info& info) override;
  void reset_peak() override { mx::reset_peak_memory(); }
  void trim() override { mx::clear_cache(); }
  void synchronize() override { mx::synchronize(stream); }
  std::shared_ptr<Weights> make_weights() override;
  std::shared_ptr<State> make_state(StateShape shape) override;
  std::shared_ptr<LoadedProgram> make_program(Program program, std::shared_ptr<Weights> weights,
                                              std::shared_ptr<State> state) override;

  const mx::Device device;
  const mx::Stream stream;
};

}  // namespace mlxcel
