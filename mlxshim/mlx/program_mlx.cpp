#include "program_mlx.h"

#include <algorithm>
#include <cstring>

#include "call.h"
#include "cuda/gpu.h"
#include "status.h"

namespace mlxcel {

namespace {

// Runs something for an op, and says of which op a failure is.
template <class Body>
void blame(int64_t number, Body&& body) {
  try {
    body();
  } catch (const Status& e) {
    throw Status(e.code, e.what(), number);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw Status(classify(e.what()), e.what(), number);
  }
}

}  // namespace

MlxProgram::MlxProgram(const MlxContext& context, Program given, const MlxWeights& weights,
                       std::shared_ptr<MlxState> kept)
    : LoadedProgram(std::move(given), std::move(kept)), context_(context), stream_(context.stream) {
  for (int64_t index : program.weights) weights_.push_back(weights.at(size_t(index)));
  for (size_t i = 0; i < program.ops.size(); i++)
    blame(int64_t(i), [&] {
      const Op& op = program.ops[i];
      OpRunner runner = runner_of(op.facts->code);
      ready_.push_back({runner.run, runner.prepare ? runner.prepare(program, op, weights_, stream_) : Prepared{}});
    });
  for (const Op& op : program.ops) {
    if (op.facts->code == MLXSHIM_OP_KV_WRITE) written_.push_back(op.integer(0));
    if (op.facts->code == MLXSHIM_OP_LINEAR) largest_matrix_ = std::max(largest_matrix_, dequantized_bytes(program, op));
  }
  fused_.resize(program.ops.size());
  if (context.on_gpu()) fusions_ = find_fusions(program, state ? &state->shape : nullptr);
  for (const Fusion& fusion : fusions_)
    for (size_t member : fusion.members) fused_[member] = &fusion;
  find_last_reads();
}

void MlxProgram::find_last_reads() {
  last_read_.resize(program.ops.size());
  std::vector<size_t> last(program.types.size(), 0);
  std::vector<bool> passes(program.types.size(), false);  // values that are read, and then no more
  for (size_t i = 0; i < program.ops.size(); i++) {
    const size_t when = fused_[i] ? fused_[i]->members.back() : i;
    for (int32_t v : program.ops[i].inputs)
      if (v >= 0 && !program.is_weight(v)) last[size_t(v)] = std::max(last[size_t(v)], when), passes[size_t(v)] = true;
  }
  for (int32_t v : program.outputs) passes[size_t(v)] = false;
  for (size_t v = 0; v < last.size(); v++)
    if (passes[v]) last_read_[last[v]].push_back(int32_t(v));
}

bool MlxProgram::is_idle(const Op& op, const RunArguments& run) const {
  if (run.counts.rows > 0) return false;
  int32_t v = op.facts->outputs > 0 ? op.first_output : op.inputs[0];
  return program.types[size_t(v)].axis == MLXSHIM_AXIS_ROWS;
}

void MlxProgram::build(Step& step) const {
  for (size_t i = 0; i < program.ops.size(); i++)
    blame(int64_t(i), [&] {
      const Op& op = program.ops[i];
      if (const Fusion* fusion = fused_[i]; fusion && step.run.counts.sequences <= fusion->most_sequences) {
        if (i == fusion->members.back()) fusion->run(step);
      } else if (!is_idle(op, step.run))
        ready_[i].run(step, op, ready_[i].prepared);
      else
        for (size_t k = 0; k < size_t(op.facts->outputs); k++)
          step.set(op, mx::zeros(step.shape_out(op, k), to_mlx(step.type_out(op, k).dtype), stream_), k);
      for (int32_t v : last_read_[i]) step.drop(v);
      step.enqueue_piece();
    });
}

std::vector<std::shared_ptr<Value>> MlxProgram::run(const RunArguments& run) {
  // Kernels of one GPU graph are ordered by what they read of each other's results only; rows that a queued step may
  // still read must not be written before it is done.
  if (context_.on_gpu() && run.overwrites) gpu_wait(stream_);
  auto* own = static_cast<MlxState*>(state.get());
  Step step(program, weights_, own, run, context_, largest_matrix_);
  for (int64_t s = 0; s < run.counts.sequences && !written_.empty(); s++) {
    const int64_t rows = step.offsets()[s + 1] - step.offsets()[s], end = step.contexts()[s];
    own->make_room(step.slots()[s], end - rows, end, written_);
  }
  build(step);
  std::vector<std::shared_ptr<Value>> values;
  std::vector<mx::array> outputs;
  for (int32_t v : program.outputs) {
    outputs.push_back(step.value(v));
    values.push_back(std::make_shared<MlxValue>(outputs.back(), stream_));
  }
  step.enqueue_rest(std::move(outputs));
  step.commit();
  return values;
}

void MlxValue::read(void* to) {
  if (bytes == 0) return;
  array_.eval();
  if (!array_.flags().row_contiguous) {
    array_ = mx::contiguous(array_, false, stream_);
    array_.eval();
  }
  // MLX would move the array to host memory for good.
  if (stream_.device == mx::Device::gpu) return gpu_download(to, array_, bytes, stream_);
  std::memcpy(to, array_.data<char>(), size_t(bytes));
}

}  // namespace mlxcel
