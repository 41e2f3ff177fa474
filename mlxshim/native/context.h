// The native context: a processor, the threads that it lends, and the work memory that programs share.
#pragma once

#include "backend.h"
#include "cpu/vector.h"
#include "memory.h"

namespace mlxcel::native {

// Work memory of the programs of a context, which run one at a time: as much as the largest of them needs.
class Arena {
 public:
  explicit Arena(std::shared_ptr<Meter> meter) : meter_(std::move(meter)) {}

  // At least so many bytes; what was in it may be lost.
  char* reserve(size_t bytes) {
    if (bytes > memory_.size()) {
      memory_ = Buffer();
      memory_ = Buffer(meter_, bytes);
    }
    return memory_.data();
  }
  void release() { memory_ = Buffer(); }

 private:
  const std::shared_ptr<Meter> meter_;
  Buffer memory_;
};

class NativeContext : public Context {
 public:
  // Throws MLXSHIM_ERR_ARGUMENT where MLXCEL_CPU names a level that there is not.
  explicit NativeContext(int64_t threads);

  void device_facts(mlxshim_device_info& info) override;
  void memory(mlxshim_memory_info& info) override;
  void reset_peak() override { meter_->reset_peak(); }
  void trim() override { arena_->release(); }
  void synchronize() override {}  // a run is over when it returns
  std::shared_ptr<Weights> make_weights() override;
  std::shared_ptr<State> make_state(StateShape shape) override;
  std::shared_ptr<LoadedProgram> make_program(Program program, std::shared_ptr<Weights> weights,
                                              std::shared_ptr<State> state) override;

 private:
  const Level level_;
  const int threads_;
  const std::shared_ptr<Meter> meter_;
  const std::shared_ptr<Arena> arena_;
};

}  // namespace mlxcel::native
