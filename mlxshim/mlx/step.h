// One run while its graph is built, and the functions that add an op to it.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "context.h"
#include "cuda/gpu.h"
#include "kv_write.h"
#include "state.h"

namespace mlxcel {

// What is prepared of an op when the program is loaded.
struct Prepared {
  std::vector<mx::array> arrays;
};

// Pairs of a token and an expert, in the order of experts, and how they are cut for a kernel.
struct SortedPairs {
  mx::array indices, order, tiles;
};

class Step {
 public:
  // Matrices are dequantized to `largest_matrix` bytes at most.
  Step(const Program& program, const std::vector<mx::array>& weights, MlxState* state, const RunArguments& run,
       const MlxContext& context, int64_t largest_matrix)
      : scratch(largest_matrix),
        program(program),
        run(run),
        stream(context.stream),
        state_(state),
        pace_(context.pace()),
        piece_(context.piece()),
        weights_(weights),
        values_(program.types.size()) {}

  // A value that is made already; inputs are copied from the host when they are first asked for.
  mx::array value(int32_t v);
  mx::array in(const Op& op, size_t i) { return value(op.inputs[i]); }
  std::optional<mx::array> maybe(const Op& op, size_t i) { return op.has(i) ? std::optional(in(op, i)) : std::nullopt; }
  const Type& type_in(const Op& op, size_t i) const { return program.types[size_t(op.inputs[i])]; }
  const Type& type_out(const Op& op, size_t i = 0) const { return program.types[size_t(op.first_output) + i]; }
  mx::Shape shape_out(const Op& op, size_t i = 0) const { return live_shape(type_out(op, i), run.counts); }

  // Sets output i of the op. Throws MLXSHIM_ERR_COMPUTE where the array has not the shape that the program says.
  void set(const Op& op, mx::array made, size_t i = 0);

  // The cache of a slot and layer as this run leaves it so far.
  Cache& cache(int64_t slot, int64_t layer);
  int64_t window(int64_t layer) const { return state_->shape.layers[size_t(layer)].window; }
  mx::array& last_tokens();
  // Of the run's batch.
  const int32_t* slots() const { return run.ints(program.slots); }
  const int32_t* offsets() const { return run.ints(program.offsets); }
  const int32_t* contexts() const { return run.ints(program.contexts); }

  // A bool mask [rows, columns] for queries at the end of the columns, each of which sees `window` columns.
  mx::array window_mask(int64_t rows, int64_t columns, int64_t window);

  // Lets go of a value that no later op reads, so that its memory can be used again.
  void drop(int32_t v) { values_[size_t(v)].reset(); }
  // Notes the bytes of arrays that are no values.
  void add_bytes(int64_t bytes) { bytes_ += bytes; }
  // Where enough was made since the last time, enqueues all that exists by now and these.
  void enqueue_piece(std::vector<mx::array> more = {});
  // Enqueues the rest: the outputs, and what the run changes of the state.
  void enqueue_rest(std::vector<mx::array> outputs);
  // Makes the changes the state's own.
  void commit();

  // On a GPU.
  GpuScratch scratch;
  std::optional<SortedPairs> sorted;  // those of the layer that was last

  bool on_gpu() const { return stream.device == mx::Device::gpu; }

  const Program& program;
  const RunArguments& run;
  const mx::Stream stream;

 private:
  void add_touched(std::vector<mx::array>& roots) const;

  MlxState* state_;
  GpuPace* pace_;           // null where the step is enqueued whole
  int64_t piece_;           // the bytes of new arrays after which a piece ends
  int64_t bytes_ = 0;       // of those since the last one
  bool in_pieces_ = false;  // whether there was one
  const std::vector<mx::array>& weights_;
  std::vector<std::optional<mx::array>> values_;
  std::map<std::pair<int64_t, int64_t>, Cache> caches_;  // touched ones, by slot and layer
  std::optional<mx::array> last_tokens_;
  std::map<std::array<int64_t, 3>, mx::array> masks_;  // by rows, columns, window
};

using OpFunction = void (*)(Step& step, const Op& op, const Prepared& prepared);
using PrepareFunction = Prepared (*)(const Program& program, const Op& op, const std::vector<mx::array>& weights,
                                     mx::Stream stream);

// How an opcode is run here. Throws MLXSHIM_ERR_UNSUPPORTED where it is not.
struct OpRunner {
  OpFunction run;
  PrepareFunction prepare = nullptr;
};
OpRunner runner_of(int64_t opcode);

// By file.
void run_embed(Step&, const Op&, const Prepared&);
void run_linear(Step&, const Op&, const Prepared&);
Prepared prepare_linear(const Program&, const Op&, const std::vector<mx::array>&, mx::Stream);
// What of its matrix a GPU dequantizes at once, in bytes.
int64_t dequantized_bytes(const Program& program, const Op& linear);
void run_rms_norm(Step&, const Op&, const Prepared&);
void run_rope(Step&, const Op&, const Prepared&);
Prepared prepare_rope(const Program&, const Op&, const std::vector<mx::array>&, mx::Stream);
void run_add(Step&, const Op&, const Prepared&);
void run_multiply(Step&, const Op&, const Prepared&);
void run_silu(Step&, const Op&, const Prepared&);
void run_swiglu(Step&, const Op&, const Prepared&);
void run_slice(Step&, const Op&, const Prepared&);
void run_reshape(Step&, const Op&, const Prepared&);
void run_gather_rows(Step&, const Op&, const Prepared&);
void run_cast(Step&, const Op&, const Prepared&);

void run_expert_linear(Step&, const Op&, const Prepared&);
Prepared prepare_expert_linear(const Program&, const Op&, const std::vector<mx::array>&, mx::Stream);
void run_route(Step&, const Op&, const Prepared&);
void run_combine(Step&, const Op&, const Prepared&);

// What a step writes into the caches of a layer.
struct KvWrites {
  std::vector<Cache*> caches;
  std::vector<KvSpan> spans;
};
KvWrites plan_kv_writes(Step& step, int64_t layer);
void run_kv_write(Step&, const Op&, const Prepared&);
void run_attend(Step&, const Op&, const Prepared&);
Prepared prepare_attend(const Program&, const Op&, const std::vector<mx::array>&, mx::Stream);
void run_load_tokens(Step&, const Op&, const Prepared&);
void run_store_tokens(Step&, const Op&, const Prepared&);

void run_penalize(Step&, const Op&, const Prepared&);
void run_bias(Step&, const Op&, const Prepared&);
void run_argmax(Step&, const Op&, const Prepared&);
void run_sample(Step&, const Op&, const Prepared&);

// The arguments of MLX's quantized functions.
struct Quantization {
  explicit Quantization(const Op& op);
  bool dense;
  std::string mode;
  int bits, group;
};

}  // namespace mlxcel
