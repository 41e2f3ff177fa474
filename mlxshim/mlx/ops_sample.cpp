// From logits to tokens.
#include "cpu_ops.h"
#include "cuda/gpu.h"
#include "step.h"

namespace mlxcel {

namespace {

// Column i of a [R, n] array as [R, 1].
mx::array column(const mx::array& a, int i, mx::Stream s) { return mx::slice(a, {0, i}, {a.shape(0), i + 1}, s); }

mx::array number(float value) { return mx::array(value); }

// Whether a kernel of ours takes the logits [R, V].
bool on_gpu(const mx::array& logits, mx::Stream s) {
  return s.device == mx::Device::gpu && logits.dtype() == mx::float32;
}

int width(const mx::array& a) { return a.shape()[1]; }

// A kernel that works on a row with a block of threads, and makes as many logits or one token a row.
mx::array by_row(const char* kernel, std::vector<mx::array> inputs, std::vector<int> arguments, const mx::array& like,
                 mx::Stream s) {
  GpuLaunch launch{kernel, unsigned(like.shape()[0]), 1, 1024, std::move(arguments)};
  return gpu_call(std::move(launch), std::move(inputs), like.shape(), mx::float32, s);
}
mx::array tokens_by_row(const char* kernel, std::vector<mx::array> inputs, mx::Stream s) {
  const int rows = inputs[0].shape()[0];
  GpuLaunch launch{kernel, unsigned(rows), 1, 1024, {width(inputs[0])}};
  return gpu_call(std::move(launch), std::move(inputs), {rows}, mx::int32, s);
}

}  // namespace

void run_penalize(Step& step, const Op& op, const Prepared&) {
  auto s = step.stream;
  auto logits = step.in(op, 0), history = step.in(op, 1), penalties = step.in(op, 2);
  if (on_gpu(logits, s))
    return step.set(op, by_row("penalize", {logits, history, penalties}, {width(logits), width(history)}, logits, s));
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
  if (on_gpu(logits, s))
    return step.set(op, by_row("bias", {logits, ids, values}, {width(logits), width(ids)}, logits, s));
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
  if (on_gpu(logits, step.stream)) return step.set(op, tokens_by_row("argmax", {logits}, step.stream));
  step.set(op, checked(logits, mx::argmax(logits, -1, false, step.stream), step.stream));
}

void run_sample(Step& step, const Op& op, const Prepared&) {
  auto logits = mx::astype(step.in(op, 0), mx::float32, step.stream);
  if (on_gpu(logits, step.stream)) {
    auto order = mx::argsort(mx::negative(logits, step.stream), -1, step.stream);
    return step.set(op, tokens_by_row("sample", {logits, order, step.in(op, 1)}, step.stream));
  }
  step.set(op, checked(logits, cpu_sample(logits, step.in(op, 1), step.stream), step.stream));
}

}  // namespace mlxcel
