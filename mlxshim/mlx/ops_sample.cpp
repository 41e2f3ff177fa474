// From logits to tokens.
#include <limits>

#include "cpu_ops.h"
#include "step.h"

namespace mlxcel {

namespace {

// Column i of a [R, n] array as [R, 1].
mx::array column(const mx::array& a, int i, mx::Stream s) { return mx::slice(a, {0, i}, {a.shape(0), i + 1}, s); }

mx::array number(float value) { return mx::array(value); }

}  // namespace

void run_penalize(Step& step, const Op& op, const Prepared&) {
  auto s = step.stream;
  auto logits = step.in(op, 0), history = step.in(op, 1), penalties = step.in(op, 2);
  auto none = mx::array(int32_t(0));
  auto held = mx::astype(mx::greater_equal(history, none, s), mx::float32, s);
  auto counts =
      mx::scatter_add_axis(mx::zeros(logits.shape(), mx::float32, s), mx::maximum(history, none, s), held, 1, s);
  auto present = mx::greater(counts, number(0), s);
  auto repeat = column(penalties, 0, s);
  auto scaled =
      mx::where(mx::greater(logits, number(0), s), mx::divide(logits, repeat, s), mx::multiply(logits, repeat, s), s);
  auto less = mx::add(mx::multiply(counts, column(penalties, 1, s), s), column(penalties, 2, s), s);
  step.set(op, mx::where(present, mx::subtract(scaled, less, s), logits, s));
}

void run_bias(Step& step, const Op& op, const Prepared&) {
  auto s = step.stream;
  auto logits = step.in(op, 0), ids = step.in(op, 1), values = step.in(op, 2);
  auto none = mx::array(int32_t(0));
  values = mx::astype(mx::where(mx::less(ids, none, s), number(0), values, s), logits.dtype(), s);
  step.set(op, mx::scatter_add_axis(logits, mx::maximum(ids, none, s), values, 1, s));
}

namespace {

// The choice per row of logits, -1 where what was chosen is not a number.
mx::array checked(const mx::array& logits, const mx::array& choice, mx::Stream s) {
  auto value = mx::take_along_axis(logits, mx::expand_dims(choice, 1, s), -1, s);
  return mx::where(mx::squeeze(mx::isnan(value, s), 1, s), mx::array(int32_t(-1)), mx::astype(choice, mx::int32, s), s);
}

}  // namespace

void run_argmax(Step& step, const Op& op, const Prepared&) {
  auto logits = step.in(op, 0);
  step.set(op, checked(logits, mx::argmax(logits, -1, false, step.stream), step.stream));
}

mx::array sample_by_mlx(const mx::array& logits, const mx::array& settings, mx::Stream s) {
  const int vocabulary = logits.shape(1);
  auto temperature = column(settings, 0, s), top_k = column(settings, 1, s), top_p = column(settings, 2, s),
       min_p = column(settings, 3, s), u = column(settings, 4, s);

  // Candidates in falling order; the sort is stable, so that of equals the lower id comes first.
  auto order = mx::argsort(mx::negative(logits, s), -1, s);
  auto sorted = mx::take_along_axis(logits, order, -1, s);
  auto rank = mx::arange(0, vocabulary, 1, mx::float32, s);
  auto first = mx::equal(rank, number(0), s);
  auto lowest = number(-std::numeric_limits<float>::infinity());

  auto kept = mx::logical_or(mx::less(rank, top_k, s), mx::less_equal(top_k, number(0), s), s);
  auto p = mx::softmax(mx::where(kept, sorted, lowest, s), -1, true, s);
  // A candidate belongs to the head while those before it have less than top_p.
  auto before = mx::cumsum(p, -1, false, false, s);
  auto head = mx::logical_or(mx::less(before, top_p, s), mx::greater_equal(top_p, number(1), s), s);
  auto likely = mx::greater_equal(p, mx::multiply(column(p, 0, s), min_p, s), s);
  kept = mx::logical_or(mx::logical_and(kept, mx::logical_and(head, likely, s), s), first, s);

  auto greedy = mx::less_equal(temperature, number(0), s);
  auto heat = mx::where(greedy, number(1), temperature, s);
  // Relative to the best, so that a tiny temperature does not overflow.
  auto scaled = mx::divide(mx::subtract(sorted, column(sorted, 0, s), s), heat, s);
  auto q = mx::softmax(mx::where(kept, scaled, lowest, s), -1, true, s);
  auto passed = mx::sum(mx::less_equal(mx::cumsum(q, -1, false, true, s), u, s), -1, true, s);
  auto last = mx::subtract(mx::sum(kept, -1, true, s), mx::array(int32_t(1)), s);
  auto choice = mx::where(greedy, mx::array(int32_t(0)), mx::minimum(passed, last, s), s);
  return mx::squeeze(mx::take_along_axis(order, choice, -1, s), 1, s);
}

void run_sample(Step& step, const Op& op, const Prepared&) {
  auto logits = mx::astype(step.in(op, 0), mx::float32, step.stream);
  auto pick = takes_cpu_ops(logits, step.stream) ? cpu_sample : sample_by_mlx;
  step.set(op, checked(logits, pick(logits, step.in(op, 1), step.stream), step.stream));
}

}  // namespace mlxcel
