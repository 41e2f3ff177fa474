// Times whole steps of a model of SmolLM2-135M's shape: decode and prefill, through the ABI.
//
//   step_bench [tokens a step and sequence] [tokens before it] [steps] [sequences] [threads]
//
// MLXCEL_PROFILE=1 adds the time by class of kernel, MLXCEL_PROFILE=stages that of each stage.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <sstream>

#include "llama.h"

using namespace test;

namespace {

const Shape kShape{30, 576, 9, 3, 64, 1536, 49152};

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// The class of a stage, from its line "NUMBER EXTENT: KERNEL … | TIME ns": matrix products by shape and format.
std::string class_of(const std::string& line) {
  const std::string kernel = line.substr(line.find(": ") + 2);
  if (kernel.starts_with("product")) return kernel.substr(0, kernel.find(", group"));
  if (kernel.starts_with("rows")) return kernel.find("argmax") != kernel.npos ? "sampling" : "norms, RoPE, cache";
  return kernel.substr(0, kernel.find(' '));
}

void print_classes(const std::string& stages) {
  std::map<std::string, int64_t> classes;
  int64_t all = 0;
  std::istringstream lines(stages);
  for (std::string line; std::getline(lines, line);) {
    const size_t bar = line.find(" | ");
    if (bar == line.npos) continue;
    const int64_t time = std::atoll(line.c_str() + bar + 3);
    classes[class_of(line)] += time;
    all += time;
  }
  for (const auto& [name, time] : classes)
    std::printf("  %-36s %9.1f us %5.1f %%\n", name.c_str(), 1e-3 * double(time), 100 * double(time) / double(all));
}

}  // namespace

int main(int argc, char** argv) {
  auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t tokens = number(1, 1), before = number(2, 0), steps = number(3, 50), sequences = number(4, 1);
  Llama model(kShape, number(5, 0));
  Random random(2);
  int64_t state = model.session.make_state(sequences, before + tokens * (steps + 2), model.state_layers());
  auto run = [&](int64_t program, int64_t at, int64_t n) {
    Batch batch;
    for (int64_t s = 0; s < sequences; s++) {
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < n; i++) ids.push_back(int32_t(random.below(kShape.vocabulary)));
      batch.add(int32_t(s), at, ids, 1);
    }
    batch.run<int32_t>(program, 1);
  };
  if (before > 0) {
    int64_t fill = model.session.load(model.program(64 * sequences, sequences, sequences, true), state);
    for (int64_t at = 0; at < before; at += 64) run(fill, at, std::min<int64_t>(64, before - at));
  }
  const auto loading = std::chrono::steady_clock::now();
  int64_t program = model.session.load(model.program(tokens * sequences, sequences, sequences, true), state);
  if (before == 0)
    std::printf("packed and planned in %.0f ms\n",
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - loading).count());
  std::vector<double> times, busy;
  for (int64_t i = 0; i < steps; i++) {
    const double processor = processor_seconds();
    auto start = std::chrono::steady_clock::now();
    run(program, tokens > 1 ? before : before + i, tokens);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    busy.push_back(processor_seconds() - processor);
  }
  std::sort(times.begin(), times.end());
  std::sort(busy.begin(), busy.end());
  const double median = times[times.size() / 2], all = double(tokens * sequences);
  // The processor's time is for machines that others work on as well.
  std::printf("%d x %d tokens after %d: median %.3f ms, best %.3f ms, %.1f tok/s (best %.1f); processor time %.3f ms\n",
              int(sequences), int(tokens), int(before), median * 1e3, times[0] * 1e3, all / median, all / times[0],
              busy[busy.size() / 4] * 1e3);
  if (const char* wish = std::getenv("MLXCEL_PROFILE")) {
    int64_t length = 0;
    OK(mlxshim_program_describe(program, nullptr, 0, &length));
    std::string text(size_t(length), ' ');
    OK(mlxshim_program_describe(program, text.data(), length, &length));
    print_classes(text);
    if (std::string(wish) == "stages") std::fputs(text.c_str(), stdout);
  }
  return failures ? 1 : 0;
}
