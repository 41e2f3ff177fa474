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

int64_t nanoseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

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
  // A view stands after what it is a part of, but for the ones of places that were added later.
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

void NativeProgram::work(const Step& step) const {
  const size_t count = plan_.stages.size();
  const bool timed = step.thread == 0 && !times_.empty();
  auto idle = [&](size_t i) { return plan_.stage_extents[i].live(step.run.counts) == 0; };
  for (size_t i = 0; i < count;) {
    // The stages that end with the next barrier: one that all work at, and small ones.
    size_t end = i;
    const auto start = timed ? Clock::now() : Clock::time_point();
    if (!idle(i) && !plan_.stages[i]->small(step.run.counts)) plan_.stages[end++]->run(step);
    while (end < count && (idle(end) || plan_.stages[end]->small(step.run.counts))) end++;
    const auto done = timed ? Clock::now() : Clock::time_point();
    step.team.barrier([&] {
      for (size_t k = i; k < end; k++)
        if (!idle(k)) plan_.stages[k]->finish(step);
    });
    if (timed) {
      times_[i].work += nanoseconds(start, done);
      times_[i].wait += nanoseconds(done, Clock::now());
    }
    i = end;
  }
}

std::vector<std::shared_ptr<Value>> NativeProgram::run(const RunArguments& run) {
  char* arena = reserve(&run);
  char* scratch = arena + aligned(plan_.arena_bytes);
  open_batch(run);
  bind(run, arena);
  pool().run(threads_, [&](Team& team, int thread) {
    work({program, run, vectors_, static_cast<NativeState*>(state.get()), team, places_.data(), sequence_of_.data(),
          scratch + size_t(thread) * scratch_bytes_, scratch + size_t(threads_) * scratch_bytes_, thread});
  });
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
    if (!times_.empty() && runs_ > 0)
      all += text(" | ", times_[i].work / runs_, " ns, waits ", times_[i].wait / runs_, " ns");
    all += "\n";
  }
  return all;
}

}  // namespace mlxcel::native
