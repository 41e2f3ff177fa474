// The context on MLX: a device and the stream of the thread that opened it.
#pragma once

#include "backend.h"
#include "convert.h"

namespace mlxcel {

// How many bytes of new arrays a GPU is given at a time, at least.
constexpr int64_t kLeastPiece = int64_t(128) << 20;

class GpuPace;
class GpuWatch;
class MlxWeights;

class MlxContext : public Context {
 public:
  MlxContext(mx::Device device, int64_t memory_limit);
  ~MlxContext() override;

  bool on_gpu() const { return device == mx::Device::gpu; }

  void device_facts(mlxshim_device_info& info) override;
  void memory(mlxshim_memory_info& info) override;
  void reset_peak() override;
  void trim() override;
  void synchronize() override { drain(); }
  void begin() override;
  void end() noexcept override;
  std::string fault() override;
  std::shared_ptr<Weights> make_weights() override;
  std::shared_ptr<State> make_state(StateShape shape) override;
  std::shared_ptr<LoadedProgram> make_program(Program program, std::shared_ptr<Weights> weights,
                                              std::shared_ptr<State> state) override;

  // Waits for all that was enqueued.
  void drain() const;
  // Throws MLXSHIM_ERR_MEMORY where so many bytes more would be above the limit.
  void reserve(int64_t bytes) const;
  // On a GPU, what enqueues the work of steps in pieces; else null.
  GpuPace* pace() const { return pace_.get(); }
  // After how many bytes of new arrays a piece is to end: more where there is much memory.
  int64_t piece() const;

  const mx::Device device;
  const mx::Stream stream;

 private:
  int64_t in_use() const;

  int64_t memory_limit_;
  std::vector<std::weak_ptr<MlxWeights>> weights_;
  std::shared_ptr<GpuWatch> watch_;  // null on the CPU
  std::unique_ptr<GpuPace> pace_;
};

}  // namespace mlxcel
