#include "program_native.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "convert.h"
#include "dtype.h"
#include "status.h"
#include "threads.h"

namespace mlxcel::native {

namespace {

constexpr size_t kLine = 64;

using Clock = std::chrono::steady_clock;

size_t aligned(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// An output: a run is over when it returns, so the bytes are there.
class NativeValue : public Value {
 public:
  explicit NativeValue(int64_t bytes) : Value(bytes), data(new char[size_t(bytes)]) {}
  void read(void* to) override {
    if (bytes > 0) std::memcpy(to, data.get(), size_t(bytes));
  }

  const std::unique_ptr<char[]> data;
};

// One run of a plan, for the pool.
class StagesJob : public Job {
 public:
  // step is that of thread 0; the others' scratch follows, so many bytes apart.
  StagesJob(const Plan& plan, const Step& step, size_t scratch_bytes, std::vector<int64_t>& times)
      : plan_(plan), step_(step), scratch_bytes_(scratch_bytes), times_(times), started_(Clock::now()) {}

  int stages() const override { return int(plan_.stages.size()); }
  int parts(int stage) const override {
    return idle(stage) ? 0 : plan_.stages[size_t(stage)]->parts(step_.program, step_.run, step_.threads);
  }
  void run(int stage, int part, int thread) const override {
    plan_.stages[size_t(stage)]->run(step_of(thread), {part, parts(stage)});
  }
  void finish(int stage, int thread) const override {
    if (!idle(stage)) plan_.stages[size_t(stage)]->finish(step_of(thread));
    if (times_.empty()) return;
    const auto now = Clock::now();
    times_[size_t(stage)] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - started_).count();
    started_ = now;
  }

 private:
  Step step_of(int thread) const {
    Step step = step_;
    step.scratch += size_t(thread) * scratch_bytes_;
    return step;
  }
  // Whether the stage works on no rows at all in this run.
  bool idle(int stage) const { return plan_.stage_extents[size_t(stage)].live(step_.run.counts) == 0; }

  const Plan& plan_;
  const Step step_;
  const size_t scratch_bytes_;
  std::vector<int64_t>& times_;
  mutable Clock::time_point started_;  // the stage
};

}  // namespace

NativeProgram::NativeProgram(const VectorKernels& vectors, int threads, std::shared_ptr<Arena> arena, Program given,
                             std::shared_ptr<NativeWeights> weights, std::shared_ptr<NativeState> kept)
    : LoadedProgram(std::move(given), kept),
      vectors_(vectors),
      threads_(threads),
      arena_(std::move(arena)),
      weights_(std::move(weights)),
      plan_(make_plan(program, *weights_, kept.get())) {
  for (const auto& stage : plan_.stages) scratch_bytes_ = std::max(scratch_bytes_, stage->scratch());
  // A line more, so that two threads never write to one.
  scratch_bytes_ = aligned(scratch_bytes_) + kLine;
  reserve(nullptr);
  places_.resize(plan_.places.size());
  if (program.slots >= 0) sequence_of_.resize(size_t(program.max_tokens));
  if (const char* wish = std::getenv("MLXCEL_PROFILE"); wish && *wish) times_.resize(plan_.stages.size());
}

void NativeProgram::open_batch(const RunArguments& run) {
  if (program.slots < 0) return;
  auto& pages = static_cast<NativeState&>(*state);
  for (int64_t s = 0; s < run.counts.sequences; s++) {
    const int32_t first = run.ints(program.offsets)[s], end = run.ints(program.offsets)[s + 1];
    const int64_t context = run.ints(program.contexts)[s];
    std::fill(sequence_of_.begin() + first, sequence_of_.begin() + end, int32_t(s));
    for (size_t layer = 0; layer < program.layers.size(); layer++)
      if (program.layers[layer].written)
        pages.open(run.ints(program.slots)[s], int64_t(layer), context - (end - first), context);
  }
}

void NativeProgram::bind(const RunArguments& run, char* arena) {
  auto where = [&](const PlaceFacts& facts) -> char* {
    switch (facts.kind) {
      case PlaceFacts::kInput: return const_cast<char*>(static_cast<const char*>(run.inputs[size_t(facts.input)]));
      case PlaceFacts::kConstant: return const_cast<char*>(facts.constant);
      case PlaceFacts::kWork: return arena + facts.offset;
      default: return nullptr;
    }
  };
  for (size_t i = 0; i < places_.size(); i++) {
    const PlaceFacts* facts = &plan_.places[i];
    int64_t offset = 0;
    while (facts->kind == PlaceFacts::kView) {
      offset += facts->offset;
      facts = &plan_.places[size_t(facts->base)];
    }
    char* base = where(*facts);
    places_[i] = base ? base + offset : nullptr;
  }
}

std::shared_ptr<Value> NativeProgram::output(size_t i, const Counts& counts) const {
  const Type type = program.types[size_t(program.outputs[i])].live(counts);
  const int64_t size = dtype_size(type.dtype), bytes = type.elements() * size;
  auto value = std::make_shared<NativeValue>(bytes);
  const Rows& rows = plan_.outputs[i];
  if (bytes == 0) return value;
  const int64_t from_size = is_float(type.dtype) ? int64_t(sizeof(float)) : size;
  for (int64_t r = 0; r < type.elements() / rows.width; r++) {
    const char* from = places_[size_t(rows.place)] + r * rows.stride * from_size;
    char* to = value->data.get() + r * rows.width * size;
    if (is_float(type.dtype) && type.dtype != MLXSHIM_DTYPE_F32)
      convert_floats(from, MLXSHIM_DTYPE_F32, to, type.dtype, size_t(rows.width));
    else
      std::memcpy(to, from, size_t(rows.width * size));
  }
  return value;
}

// The memory of a run: the places of the plan, the threads' scratch, and what threads share in a stage.
char* NativeProgram::reserve(const RunArguments* run) {
  size_t bytes = aligned(plan_.arena_bytes) + size_t(threads_) * scratch_bytes_, shared = 0;
  if (run)
    for (const auto& stage : plan_.stages) shared = std::max(shared, stage->shared(program, *run, threads_));
  return arena_->reserve(bytes + std::bit_ceil(shared));  // so that it grows seldom
}

std::vector<std::shared_ptr<Value>> NativeProgram::run(const RunArguments& run) {
  char* arena = reserve(&run);
  char* scratch = arena + aligned(plan_.arena_bytes);
  open_batch(run);
  bind(run, arena);
  const Step step{program,        run,
                  vectors_,       static_cast<NativeState*>(state.get()),
                  places_.data(), sequence_of_.data(),
                  scratch,        scratch + size_t(threads_) * scratch_bytes_,
                  threads_};
  pool().run(threads_, StagesJob(plan_, step, scratch_bytes_, times_));
  runs_++;
  std::vector<std::shared_ptr<Value>> values;
  for (size_t i = 0; i < program.outputs.size(); i++) values.push_back(output(i, run.counts));
  return values;
}

std::string NativeProgram::describe() const {
  std::string all = text(plan_.stages.size(), " stages on ", threads_, " threads, ", (plan_.arena_bytes + 1023) / 1024,
                         " KB of work memory\n");
  for (size_t i = 0; i < plan_.stages.size(); i++) {
    all += text(i, " ", plan_.stage_extents[i].name(), ": ", plan_.stages[i]->describe());
    if (!times_.empty() && runs_ > 0) all += text(" | ", times_[i] / runs_, " ns");
    all += "\n";
  }
  return all;
}

}  // namespace mlxcel::native
