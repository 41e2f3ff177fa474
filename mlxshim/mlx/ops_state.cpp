// Ops that read and change the state.
#include <algorithm>
#include <array>

#include "cuda/gpu.h"
#include "kv_write.h"
#include "status.h"
#include "step.h"

namespace mlxcel {

KvWrites plan_kv_writes(Step& step, int64_t layer) {
  KvWrites writes;
  for (int64_t s = 0; s < step.run.counts.sequences; s++) {
    const int64_t first = step.offsets()[s], rows = step.offsets()[s + 1] - first, end = step.contexts()[s];
    writes.caches.push_back(&step.cache(step.slots()[s], layer));
    writes.spans.push_back({first, rows, end - rows});
  }
  return writes;
}

void run_kv_write(Step& step, const Op& op, const Prepared&) {
  KvWrites writes = plan_kv_writes(step, op.integer(0));
  kv_write(std::move(writes.caches), std::move(writes.spans), step.in(op, 0), step.in(op, 1), step.stream);
}

namespace {

// The attention of one sequence: q [rows, heads, Dk] -> [rows, heads, Dv].
mx::array attend_at_once(Step& step, const mx::array& q, const Cache& cache, int64_t context, int64_t window,
                         float scale) {
  const int32_t rows = q.shape(0), heads = q.shape(1);
  auto s = step.stream;
  // What the first query sees is the most that must be read.
  const int64_t seen = window > 0 ? std::min(context, window + rows - 1) : context;
  auto tail = [&](const mx::array& a) {
    return mx::slice(a, {0, 0, int32_t(context - seen), 0}, {1, a.shape(1), int32_t(context), a.shape(3)}, s);
  };
  auto k = tail(*cache.keys), v = tail(*cache.values);
  if (rows == 1) {
    auto y = mx::fast::scaled_dot_product_attention(mx::reshape(q, {1, heads, 1, q.shape(2)}, s), k, v, scale, "", {},
                                                    {}, false, s);
    return mx::reshape(y, {1, heads, v.shape(3)}, s);
  }
  const bool masked = window > 0 && seen > window;
  auto turned = mx::transpose(mx::expand_dims(q, 0, s), {0, 2, 1, 3}, s);
  auto y = mx::fast::scaled_dot_product_attention(
      turned, k, v, scale, masked ? "array" : "causal",
      masked ? std::optional(step.window_mask(rows, seen, window)) : std::nullopt, {}, false, s);
  return mx::squeeze(mx::transpose(y, {0, 2, 1, 3}, s), 0, s);
}

// The kernel for prompts, for heads of that size, where there is one: it multiplies in f16 or bf16.
std::optional<GpuVariant> prompt_kernel(mx::Dtype dtype, int64_t key_dim, int64_t value_dim, mx::Device device) {
  constexpr std::array<int64_t, 5> kDims{64, 80, 96, 128, 256};
  if (device != mx::Device::gpu || dtype == mx::float32 || key_dim != value_dim ||
      std::find(kDims.begin(), kDims.end(), key_dim) == kDims.end() || !gpu_has_matrix_units(device))
    return std::nullopt;
  return text("-DATTENTION -DTYPE=", gpu_dtype(dtype), " -DWIDTH=", key_dim);
}

// Up to so many queries MLX has a kernel that reads the keys once.
constexpr int32_t kFewQueries = 3;

// How many bytes of scores a GPU holds at once where MLX attends: it has no fused attention for more than a few queries
// without cuDNN.
constexpr int64_t kMostScores = int64_t(128) << 20;

mx::array attend(Step& step, const mx::array& q, const Cache& cache, int64_t context, int64_t window, float scale) {
  const int32_t rows = q.shape()[0], heads = q.shape()[1], width = q.shape()[2];
  const auto& keys = *cache.keys;
  std::optional<GpuVariant> kernel;
  if (rows > kFewQueries && keys.dtype() == q.dtype())
    kernel = prompt_kernel(q.dtype(), width, cache.values->shape()[3], step.stream.device);
  if (kernel) {
    constexpr unsigned kQueries = 64;  // of a block, as in kernels.cu
    GpuLaunch launch{"attend_prompt", unsigned(heads), (unsigned(rows) + kQueries - 1) / kQueries, 128,
                     {rows, heads, keys.shape()[1], int(context), keys.shape()[2], int(window), number_bits(scale)},
                     false, *kernel};
    return gpu_call(std::move(launch), {q, keys, *cache.values}, q.shape(), q.dtype(), step.stream);
  }
  // The softmax is computed in f32.
  const int64_t seen = window > 0 ? std::min(context, window + rows - 1) : context;
  const int32_t most = int32_t(std::clamp<int64_t>(kMostScores / (heads * seen * 4), 1, rows));
  if (!step.on_gpu() || rows == most) return attend_at_once(step, q, cache, context, window, scale);
  std::vector<mx::array> parts;
  for (int32_t first = 0; first < rows; first += most) {
    const int32_t end = std::min(rows, first + most);
    auto some = mx::slice(q, {first, 0, 0}, {end, heads, width}, step.stream);
    parts.push_back(attend_at_once(step, some, cache, context - rows + end, window, scale));
    step.add_bytes(int64_t(end - first) * heads * seen * 4);
    step.enqueue_piece({parts.back()});
  }
  return mx::concatenate(std::move(parts), 0, step.stream);
}

}  // namespace

Prepared prepare_attend(const Program& program, const Op& op, const std::vector<mx::array>&, mx::Stream stream) {
  const Type &q = program.types[size_t(op.inputs[0])], &out = program.types[size_t(op.first_output)];
  if (auto kernel = prompt_kernel(to_mlx(q.dtype), q.last(), out.last(), stream.device)) gpu_prepare(*kernel, stream.device);
  return {};
}

void run_attend(Step& step, const Op& op, const Prepared&) {
  const int64_t layer = op.integer(0), sequences = step.run.counts.sequences;
  auto q = step.in(op, 0);
  std::vector<mx::array> parts;
  for (int64_t s = 0; s < sequences; s++) {
    auto own = sequences == 1 ? q
                              : mx::slice(q, {step.offsets()[s], 0, 0}, {step.offsets()[s + 1], q.shape(1), q.shape(2)},
                                          step.stream);
    parts.push_back(attend(step, own, step.cache(step.slots()[s], layer), step.contexts()[s], step.window(layer),
                           float(op.real(1))));
  }
  step.set(op, sequences == 1 ? parts[0] : mx::concatenate(parts, 0, step.stream));
}

void run_load_tokens(Step& step, const Op& op, const Prepared&) {
  const Type type = step.type_in(op, 0).live(step.run.counts);
  const int32_t* tokens = step.run.ints(op.inputs[0]);
  const int64_t n = type.elements(), last = std::count(tokens, tokens + n, MLXSHIM_TOKEN_LAST);
  auto given = step.in(op, 0);
  if (last == 0) return step.set(op, given);
  if (step.on_gpu()) {
    GpuLaunch launch{"load_tokens", unsigned(n + 255) / 256, 1, 256,
                     {int(n), type.ndim == 2 ? int(type.dims[1]) : 1, MLXSHIM_TOKEN_LAST}};
    auto inputs = {given, step.in(op, 1), step.last_tokens()};
    return step.set(op, gpu_call(launch, inputs, given.shape(), mx::int32, step.stream));
  }
  auto stored = mx::take(step.last_tokens(), step.in(op, 1), 0, step.stream);
  if (last == n && type.ndim == 1) return step.set(op, stored);
  if (type.ndim == 2) stored = mx::expand_dims(stored, 1, step.stream);
  auto is_last = mx::equal(given, mx::array(int32_t(MLXSHIM_TOKEN_LAST)), step.stream);
  step.set(op, mx::where(is_last, stored, given, step.stream));
}

void run_store_tokens(Step& step, const Op& op, const Prepared&) {
  auto tokens = step.in(op, 0);
  if (tokens.dtype() != mx::int32) tokens = mx::view(tokens, mx::int32, step.stream);
  if (step.on_gpu()) {
    auto& stored = step.last_tokens();
    const int count = int(stored.size());
    GpuLaunch launch{"store_tokens", unsigned(count + 255) / 256, 1, 256, {count, int(tokens.size())}};
    stored = gpu_call(launch, {stored, step.in(op, 1), tokens}, stored.shape(), mx::int32, step.stream);
    return;
  }
  tokens = mx::maximum(tokens, mx::array(int32_t(0)), step.stream);
  step.last_tokens() = mx::put_along_axis(step.last_tokens(), step.in(op, 1), tokens, 0, step.stream);
}

}  // namespace mlxcel
