// Times whole steps of a model of SmolLM2-135M's shape: decode and prefill, through the ABI.
//
//   step_bench [tokens a step and sequence] [tokens before it] [steps] [sequences] [threads]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "llama.h"

using namespace test;

namespace {

const Shape kShape{30, 576, 9, 3, 64, 1536, 49152};

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
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
  if (std::getenv("MLXCEL_PROFILE")) {
    int64_t length = 0;
    OK(mlxshim_program_describe(program, nullptr, 0, &length));
    std::string text(size_t(length), ' ');
    OK(mlxshim_program_describe(program, text.data(), length, &length));
    std::fputs(text.c_str(), stdout);
  }
  return failures ? 1 : 0;
}
