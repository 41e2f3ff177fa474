// What becomes of calls when the device of a context is lost: around a library of the test's own, whose device is lost
// when the test says so, and where nothing may be destroyed after that.
#include <thread>

#include "../common/backend.h"
#include "../common/status.h"
#include "abi.h"

using namespace test;
using namespace mlxcel;

namespace {

std::string fault;      // of the device
std::string throws;     // what a step throws; empty: nothing
int begun = 0, ended = 0, alive = 0;

struct Counted {
  Counted() { alive++; }
  ~Counted() { alive--; }
};

struct FakeValue : Value {
  FakeValue() : Value(4) {}
  void read(void* to) override { std::memset(to, 0, 4); }
  Counted counted;
};

struct FakeState : State {
  using State::State;
  int64_t bytes() const override { return 0; }
  void reset(int64_t) override {
    if (!throws.empty()) throw std::runtime_error(throws);
  }
  void copy(int64_t, int64_t, int64_t) override { fail(MLXSHIM_ERR_IO, "no copy"); }
  Counted counted;
};

struct FakeContext : Context {
  void begin() override { begun++; }
  void end() noexcept override { ended++; }
  std::string fault() override { return ::fault; }
  void device_facts(mlxshim_device_info&) override {}
  void memory(mlxshim_memory_info&) override {}
  void reset_peak() override {}
  void trim() override {}
  void synchronize() override {}
  std::shared_ptr<Weights> make_weights() override { return nullptr; }
  std::shared_ptr<State> make_state(StateShape shape) override { return std::make_shared<FakeState>(std::move(shape)); }
  std::shared_ptr<LoadedProgram> make_program(Program, std::shared_ptr<Weights>, std::shared_ptr<State>) override {
    return nullptr;
  }
  Counted counted;
};

struct Device {
  int64_t context = 0, state = 0;
  Device() {
    fault.clear(), throws.clear();
    mlxshim_context_params params{sizeof params, MLXSHIM_DEVICE_CPU, 0, 0, 0};
    OK(mlxshim_context_create(&params, &context));
    mlxshim_layer one = layer(1, 2, 2);
    mlxshim_state_params shape{sizeof shape, F32, 1, 1, 1, &one};
    OK(mlxshim_state_create(context, &shape, &state));
  }
};

}  // namespace

namespace mlxcel {
std::shared_ptr<Context> open_context(const mlxshim_context_params&) { return std::make_shared<FakeContext>(); }
LibraryInfo library_info() { return {"{}", ""}; }
}  // namespace mlxcel

TEST(a_failure_is_told_and_the_next_call_works) {
  Device device;
  throws = "a step failed";
  FAILS(MLXSHIM_ERR_COMPUTE, mlxshim_state_reset(device.state, 0));
  CHECK(last_error(device.context) == "a step failed");
  throws.clear();
  OK(mlxshim_state_reset(device.state, 0));
  OK(mlxshim_context_destroy(device.context));
  CHECK_EQUAL(alive, 0);
  CHECK_EQUAL(begun, ended);
  CHECK(begun >= 4);
}

TEST(after_the_loss_every_call_says_so_and_frees_nothing) {
  Device device;
  const int before = alive;
  fault = "CUDA_ERROR_LAUNCH_FAILED";
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_reset(device.state, 7));  // has nothing to do with it, and does not ask
  throws = "unspecified launch failure";
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_state_reset(device.state, 0));
  const std::string sentence = "unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)";
  CHECK(last_error(device.context) == sentence);
  fault.clear(), throws.clear();  // a device does not come back
  mlxshim_memory_info memory{sizeof memory, 0, 0, 0, 0};
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_state_reset(device.state, 0));
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_memory(device.context, &memory));
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_synchronize(device.context));
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_state_destroy(device.state));
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_context_destroy(device.context));
  CHECK(last_error(device.context) == sentence);
  CHECK_EQUAL(alive, before);
  CHECK_EQUAL(begun, ended);
  // Another context is not concerned.
  Device other;
  OK(mlxshim_state_reset(other.state, 0));
  OK(mlxshim_context_destroy(other.context));
  CHECK_EQUAL(alive, before);
}

TEST(running_out_of_memory_may_be_a_loss) {
  Device device;
  throws = "[malloc_async] cudaMallocAsync failed";
  FAILS(MLXSHIM_ERR_MEMORY, mlxshim_state_reset(device.state, 0));
  fault = "CUDA_ERROR_ILLEGAL_ADDRESS";
  FAILS(MLXSHIM_ERR_DEVICE, mlxshim_state_reset(device.state, 0));
}
