// Mixtures of experts.
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

void run_expert_linear(Step& step, const Op& op, const Prepared& prepared) {
  Quantization q(op);
  auto x = step.in(op, 0), indices = step.in(op, 1);
  // To MLX: one matrix of one row for each token (and expert).
  x = x.ndim() == 2 ? mx::expand_dims(x, {1, 2}, step.stream) : mx::expand_dims(x, 2, step.stream);
  auto y = q.dense ? mx::gather_mm(x, prepared.arrays[0], std::nullopt, indices, false, step.stream)
                   : mx::gather_qmm(x, step.in(op, 2), step.in(op, 3), step.maybe(op, 4), std::nullopt, indices, true,
                                    q.group, q.bits, q.mode, std::nullopt, false, step.stream);
  y = mx::squeeze(y, 2, step.stream);
  if (op.has(5)) y = mx::add(y, mx::take(step.in(op, 5), indices, 0, step.stream), step.stream);
  step.set(op, y);
}

void run_route(Step& step, const Op& op, const Prepared&) {
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
