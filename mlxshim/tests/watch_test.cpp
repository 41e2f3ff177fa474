// The end of a process whose GPU is lost: around a driver of the test's own. Each case is a process of its own, this program
// with the number of the case.
#include "../mlx/cuda/watch.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "check.h"

namespace {

std::atomic<CUresult> answer{CUDA_SUCCESS};
const char* self = "";

}  // namespace

namespace mlxcel {

const Driver& driver() {
  static const Driver all = [] {
    Driver d{};
    d.set_current = [](CUcontext) { return CUDA_SUCCESS; };
    d.query_stream = [](CUstream) { return answer.load(); };
    d.exchange_capture_mode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    return d;
  }();
  return all;
}

const char* driver_word(CUresult) { return "CUDA_ERROR_TEST"; }

}  // namespace mlxcel

namespace {

using namespace std::chrono_literals;

[[noreturn]] void raise() { throw 1; }

struct Throws {
  ~Throws() { raise(); }  // as MLX's do
};

struct Process {
  int code;  // -1: a signal
  std::string said;
};

Process run(const char* what) {
  std::string command = std::string("\"") + self + "\" --process \"" + what + "\" 2>&1";
#if defined(_WIN32)
  command = "\"" + command + "\"";
  FILE* pipe = _popen(command.c_str(), "r");
#else
  FILE* pipe = popen(command.c_str(), "r");
#endif
  Process result;
  for (int c; (c = std::fgetc(pipe)) != EOF;) result.said += char(c);
#if defined(_WIN32)
  result.code = _pclose(pipe);
#else
  int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
#endif
  return result;
}

// What the processes do. They end with 0 where nobody ends them.
void behave(const std::string& what) {
  auto watch = mlxcel::watch_stream(nullptr, nullptr);
  if (what == "waits" || what == "waits on a working GPU" || what == "idles") {
    if (what != "idles") watch->begin();
    if (what != "waits on a working GPU") answer = CUDA_ERROR_LAUNCH_FAILED;
    std::this_thread::sleep_for(14s);
  } else if (what == "returns") {
    watch->begin();
    std::this_thread::sleep_for(4s);
    answer = CUDA_ERROR_LAUNCH_FAILED;
    std::this_thread::sleep_for(1s);
    watch->end();
    std::this_thread::sleep_for(8s);
  } else if (what == "throws") {
    answer = CUDA_ERROR_LAUNCH_FAILED;
    Throws it;
  } else if (what == "throws on a thread") {
    answer = CUDA_ERROR_LAUNCH_FAILED;
    std::thread([] { throw 1; }).join();
  } else if (what == "throws on a working GPU") {
    answer = CUDA_ERROR_NOT_READY;
    Throws it;
  }
}

struct Case {
  const char* what;
  bool ends, sentence;  // by itself, and with the sentence
  std::future<Process> process;
};

}  // namespace

TEST(processes) {
  std::vector<Case> cases;
  cases.push_back({"waits", false, true, {}});
  cases.push_back({"waits on a working GPU", true, false, {}});
  cases.push_back({"idles", true, false, {}});
  cases.push_back({"returns", true, false, {}});
  cases.push_back({"throws", false, true, {}});
  cases.push_back({"throws on a thread", false, true, {}});
  cases.push_back({"throws on a working GPU", false, false, {}});
  for (Case& c : cases) c.process = std::async(std::launch::async, run, c.what);
  for (Case& c : cases) {
    const Process p = c.process.get();
    const bool sentence = p.said.find("mlxcel: the GPU is lost (CUDA_ERROR_TEST)") != std::string::npos;
    const bool code = c.ends ? p.code == 0 : c.sentence ? p.code == 1 : p.code != 0 && p.code != 1;
    test::report(code && sentence == c.sentence, __FILE__, __LINE__, std::string(c.what) + " ended with " + std::to_string(p.code) + ": " + p.said);
  }
}

int main(int argc, char** argv) {
  if (argc == 3 && !std::strcmp(argv[1], "--process")) return behave(argv[2]), 0;
  self = argv[0];
  return test::run_all(argc, argv);
}
