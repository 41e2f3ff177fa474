// Mixtures of experts.
#include <algorithm>

#include "cuda/gpu.h"
#include "status.h"
#include "step.h"

namespace mlxcel {

namespace {

// The kernel for prompts, where there is one for a product of the type with matrices [.., height, width].
std::optional<GpuVariant> prompt_kernel(const Quantization& q, mx::Dtype dtype, mx::Dtype weights, int64_t height,
                                        int64_t width, mx::Device device) {
  if (device != mx::Device::gpu || dtype == mx::float32 || (q.dense && weights != dtype) || height % 2 != 0 ||
      width % 32 != 0 || !gpu_has_matrix_units(device))
    return std::nullopt;
  return text("-DEXPERTS -DTYPE=", gpu_dtype(dtype), " -DMODE=", q.dense ? 4 : gpu_quantization(q.mode),
              " -DBITS=", q.dense ? 16 : q.bits);
}

}  // namespace

Prepared prepare_expert_linear(const Program& program, const Op& op, const std::vector<mx::array>& weights,
                               mx::Stream stream) {
  Prepared prepared;
  Quantization q(op);
  const auto& w = weights[size_t(op.inputs[2] - program.input_count)];
  const Type& x = program.types[size_t(op.inputs[0])];
  if (auto kernel = prompt_kernel(q, to_mlx(x.dtype), w.dtype(), w.shape()[1], x.last(), stream.device))
    gpu_prepare(*kernel, stream.device);
  if (q.dense)
    prepared.arrays.push_back(mx::swapaxes(w, 1, 2, stream));
  mx::eval(prepared.arrays);
  return prepared;
}

namespace {

constexpr int kSortedExperts = 1024;  // that sort_pairs takes

// From how many pairs of a token and an expert on it is faster to read each expert's matrix once for all its pairs.
constexpr int kManyPairs = 32;

// Pairs by expert: what one layer's products have in common.
const SortedPairs& sorted_pairs(Step& step, const mx::array& indices, int experts) {
  if (!step.sorted || step.sorted->indices.id() != indices.id()) {
    constexpr int kPairs = 128;  // of a tile, as in kernels.cu
    const int pairs = int(indices.size()), most = std::min(pairs, pairs / kPairs + experts);
    GpuLaunch launch{"sort_pairs", 1, 1, kSortedExperts, {pairs, most}};
    auto made = gpu_calls(launch, {indices}, {{pairs}, {most, 3}}, {mx::int32, mx::int32}, step.stream);
    step.sorted = {indices, made[0], made[1]};
  }
  return *step.sorted;
}

// By kernels of ours: MLX compiles its own at run time, which takes a quarter of a minute. Nothing where there is none for
// matrices that are not quantized.
std::optional<mx::array> multiply_on_gpu(Step& step, const Op& op, const Quantization& q) {
  auto s = step.stream;
  auto x = step.in(op, 0), indices = step.in(op, 1), w = step.in(op, 2);
  auto scales = step.maybe(op, 3), biases = step.maybe(op, 4);
  const bool own = x.ndim() == 3;  // a row of x for each pair
  const int k = indices.shape()[1], pairs = int(indices.size()), width = x.shape().back(), height = w.shape()[1];
  const int experts = w.shape()[0];
  const mx::Shape shape{indices.shape()[0], k, height};
  const int mode = q.dense ? 4 : gpu_quantization(q.mode), scale_dtype = mode == 0 ? gpu_dtype(scales->dtype()) : 0;
  std::optional<GpuVariant> kernel;
  if (pairs >= kManyPairs && experts <= kSortedExperts)
    kernel = prompt_kernel(q, x.dtype(), w.dtype(), height, width, s.device);
  if (kernel) {
    const SortedPairs& sorted = sorted_pairs(step, indices, experts);
    constexpr int kHeight = 128;  // of a block, as in kernels.cu
    GpuLaunch launch{"expert_products", unsigned(height + kHeight - 1) / kHeight, unsigned(sorted.tiles.shape()[0]), 256,
                     {width, height, k, own, q.group, scale_dtype}, false, *kernel};
    return gpu_call(launch, {x, sorted.order, sorted.tiles, w, scales ? *scales : w, biases ? *biases : w}, shape, x.dtype(), s);
  }
  if (q.dense) return std::nullopt;
  GpuLaunch launch{"expert_product", unsigned(pairs), unsigned(height + 3) / 4, 128,
                   {width, height, k, own, mode, q.bits, q.group, gpu_dtype(x.dtype()), scale_dtype}};
  return gpu_call(launch, {x, indices, w, *scales, biases ? *biases : *scales}, shape, x.dtype(), s);
}

}  // namespace

void run_expert_linear(Step& step, const Op& op, const Prepared& prepared) {
  Quantization q(op);
  auto x = step.in(op, 0), indices = step.in(op, 1);
  if (auto y = step.on_gpu() ? multiply_on_gpu(step, op, q) : std::nullopt)
    return step.set(op, op.has(5) ? mx::add(*y, gpu_take(step.in(op, 5), indices, step.stream), step.stream) : *y);
  // To MLX: one matrix of one row for each token (and expert).
  x = x.ndim() == 2 ? mx::expand_dims(x, {1, 2}, step.stream) : mx::expand_dims(x, 2, step.stream);
  auto y = q.dense ? mx::gather_mm(x, prepared.arrays[0], std::nullopt, indices, false, step.stream)
                   : mx::gather_qmm(x, step.in(op, 2), step.in(op, 3), step.maybe(op, 4), std::nullopt, indices, true,
                                    q.group, q.bits, q.mode, std::nullopt, false, step.stream);
  y = mx::squeeze(y, 2, step.stream);
  if (op.has(5)) y = mx::add(y, step.on_gpu() ? gpu_take(step.in(op, 5), indices, step.stream)
                                       : mx::take(step.in(op, 5), indices, 0, step.stream), step.stream);
  step.set(op, y);
}

void run_route(Step& step, const Op& op, const Prepared&) {
  const Type& logits = step.type_in(op, 0);
  if (step.on_gpu() && logits.last() <= 1024 && op.integer(0) <= 32) {
    auto given = step.in(op, 0);
    const int tokens = given.shape()[0], k = int(op.integer(0));
    const mx::Dtype dtype = to_mlx(step.type_out(op, 1).dtype);
    GpuLaunch launch{"route", unsigned(tokens), 1, 32,
                     {given.shape()[1], k, op.integer(1) != 0, gpu_dtype(given.dtype()), gpu_dtype(dtype)}};
    auto made = gpu_calls(launch, {given}, {{tokens, k}, {tokens, k}}, {mx::int32, dtype}, step.stream);
    step.set(op, made[0], 0);
    return step.set(op, made[1], 1);
  }
  auto p = mx::softmax(step.in(op, 0), -1, true, step.stream);
  const int experts = p.shape(1), k = int(op.integer(0));
  auto order = mx::argpartition(p, experts - k, -1, step.stream);
  auto best = mx::slice(order, {0, experts - k}, {p.shape(0), experts}, step.stream);
  auto weights = mx::take_along_axis(p, best, -1, step.stream);
  if (op.integer(1)) weights = mx::divide(weights, mx::sum(weights, -1, true, step.stream), step.stream);
  step.set(op, best, 0);
  step.set(op, weights, 1);
}

void run_combine(Step& step, const Op& op, const Prepared&) {
  auto x = step.in(op, 0), shares = step.in(op, 1);
  if (step.on_gpu()) {
    const int tokens = x.shape()[0], k = x.shape()[1], width = x.shape()[2];
    GpuLaunch launch{"combine", unsigned(tokens), unsigned(width + 255) / 256, 256,
                     {width, k, gpu_dtype(x.dtype()), gpu_dtype(shares.dtype())}};
    return step.set(op, gpu_call(launch, {x, shares}, {tokens, width}, x.dtype(), step.stream));
  }
  auto weights = mx::expand_dims(shares, 2, step.stream);
  step.set(op, mx::sum(mx::multiply(x, weights, step.stream), 1, false, step.stream));
}

}  // namespace mlxcel
