#include "watch.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#if defined(_WIN32)
#include <windows.h>
#endif

#include "status.h"

namespace mlxcel {

namespace {

using namespace std::chrono_literals;

// A call that takes this long is looked at, and one that does not return so long after its GPU was lost never will.
constexpr auto kLong = 3s, kGrace = 3s;

[[noreturn]] void end_process(const std::string& fault) {
  std::fprintf(stderr,
               "mlxcel: the GPU is lost (%s), and what was computed on it with it: start again, and if it happens again, "
               "restart the computer and update the NVIDIA driver\n",
               fault.c_str());
  std::fflush(stderr);
#if defined(_WIN32)
  TerminateProcess(GetCurrentProcess(), 1);  // no DLL is asked, as one may wait for the GPU
#endif
  std::_Exit(1);
}

// The GPU that was opened last.
std::atomic<CUcontext> last_context{nullptr};
std::atomic<CUstream> last_stream{nullptr};

void end_if_lost() {
  if (auto fault = stream_fault(last_context, last_stream); !fault.empty()) end_process(fault);
}

// An exception that nobody catches, as one that leaves a destructor, ends here.
void catch_end() {
#if defined(_WIN32)
  // There std::set_terminate is for one thread only, and the end of all is this.
  static auto before = std::signal(SIGABRT, [](int) { end_if_lost(); });
#else
  static std::terminate_handler before = std::set_terminate([] {
    end_if_lost();
    before();
  });
#endif
  (void)before;
}

class Watch : public GpuWatch {
 public:
  void begin() override { call_++, in_call_ = true; }
  void end() noexcept override { in_call_ = false; }

  // For a thread of its own, as long as somebody else knows the watch.
  static void look(std::shared_ptr<Watch> self, CUcontext context, CUstream stream) {
    // Nothing that is asked here is to disturb a capture of another thread.
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver().exchange_capture_mode(&relaxed);
    for (uint64_t seen = 0; self.use_count() > 1; std::this_thread::sleep_for(kLong)) {
      const uint64_t now = self->call_;
      if (std::exchange(seen, now) != now || !self->in_call_) continue;
      const auto fault = stream_fault(context, stream);
      if (fault.empty()) continue;
      std::this_thread::sleep_for(kGrace);
      if (self->in_call_ && self->call_ == now) end_process(fault);
    }
  }

 private:
  std::atomic<uint64_t> call_{0};  // the number of the last one
  std::atomic<bool> in_call_{false};
};

}  // namespace

std::string stream_fault(CUcontext context, CUstream stream) {
  CUresult result = driver().set_current(context);
  if (result == CUDA_SUCCESS) result = driver().query_stream(stream);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ? "" : driver_word(result);
}

std::shared_ptr<GpuWatch> watch_stream(CUcontext context, CUstream stream) {
  last_context = context;
  last_stream = stream;
  catch_end();
  auto watch = std::make_shared<Watch>();
  std::thread(Watch::look, watch, context, stream).detach();
  return watch;
}

}  // namespace mlxcel
