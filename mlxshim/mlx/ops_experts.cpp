// Mixtures of experts.
#include "cuda/gpu.h"
#include "step.h"

namespace mlxcel {

Prepared prepare_expert_linear(const Program& program, const Op& op, const std::vector<mx::array>& weights,
                               mx::Stream stream) {
  Prepared prepared;
  if (Quantization(op).dense)
    prepared.arrays.push_back(mx::swapaxes(weights[size_t(op.inputs[2] - program.input_count)], 1, 2, stream));
  mx::eval(prepared.arrays);
  return prepared;
}

namespace {

// By a kernel of ours: MLX compiles its own at run time, which takes a quarter of a minute.
mx::array multiply_on_gpu(Step& step, const Op& op, const Quantization& q) {
  auto s = step.stream;
  auto x = step.in(op, 0), indices = step.in(op, 1), w = step.in(op, 2), scales = step.in(op, 3);
  auto biases = step.maybe(op, 4);
  const bool own = x.ndim() == 3;  // a row of x for each pair
  const int k = indices.shape()[1], pairs = int(indices.size()), width = x.shape().back(), height = w.shape()[1];
  const mx::Shape shape{indices.shape()[0], k, height};
  const int mode = q.mode == "affine" ? 0 : q.mode == "mxfp4" ? 1 : q.mode == "mxfp8" ? 2 : 3;
  GpuLaunch launch{"expert_product", unsigned(pairs), unsigned(height + 3) / 4, 128,
                   {width, height, k, own, mode, q.bits, q.group, gpu_dtype(x.dtype()),
                    mode == 0 ? gpu_dtype(scales.dtype()) : 0}};
  return gpu_call(launch, {x, indices, w, scales, biases ? *biases : scales}, shape, x.dtype(), s);
}

}  // namespace

void run_expert_linear(Step& step, const Op& op, const Prepared& prepared) {
  Quantization q(op);
  auto x = step.in(op, 0), indices = step.in(op, 1);
  if (step.on_gpu() && !q.dense) {
    auto y = multiply_on_gpu(step, op, q);
    return step.set(op, op.has(5) ? mx::add(y, gpu_take(step.in(op, 5), indices, step.stream), step.stream) : y);
  }
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
  auto weights = mx::expand_dims(step.in(op, 1), 2, step.stream);
  step.set(op, mx::sum(mx::multiply(step.in(op, 0), weights, step.stream), 1, false, step.stream));
}

}  // namespace mlxcel
