// Embedding, linear layers, normalization, rotation and what is computed element by element.
#include <algorithm>

#include "cpu_ops.h"
#include "cuda/gpu.h"
#include "dtype.h"
#include "status.h"
#include "step.h"

namespace mlxcel {

namespace {

const char* mode_name(int64_t mode) {
  switch (mode) {
    case MLXSHIM_QUANT_MXFP4: return "mxfp4";
    case MLXSHIM_QUANT_MXFP8: return "mxfp8";
    case MLXSHIM_QUANT_NVFP4: return "nvfp4";
    default: return "affine";
  }
}

constexpr unsigned kThreads = 256;
unsigned blocks(int64_t n) { return unsigned((n + kThreads - 1) / kThreads); }

mx::array embed_on_gpu(Step& step, const Op& op, const Quantization& q) {
  auto ids = step.in(op, 0), w = step.in(op, 1);
  const mx::Shape shape = step.shape_out(op);
  const mx::Dtype dtype = to_mlx(step.type_out(op).dtype);
  const int width = shape[1], out = gpu_dtype(dtype);
  if (q.dense) {
    GpuLaunch launch{"take_rows", unsigned(shape[0]), blocks(width), kThreads, {width, gpu_dtype(w.dtype()), out}};
    return gpu_call(launch, {ids, w}, shape, dtype, step.stream);
  }
  auto scales = step.in(op, 2);
  GpuLaunch launch{"embed", unsigned(shape[0]), blocks(width), kThreads,
                   {width, q.bits, q.group, gpu_dtype(scales.dtype()), out}};
  return gpu_call(launch, {ids, w, scales, step.in(op, 3)}, shape, dtype, step.stream);
}

// Whether MLX takes its matrix-vector kernel, once for each row, for a product with so many rows. It never gets to see
// another one: its matrix kernel is compiled on the user's machine, which takes most of a minute, and is slower than
// what we do instead.
constexpr int kMostRows = 7;  // from 8 on it takes the matrix kernel
bool takes_vector_kernel(const Quantization& q, int width) {
  // On compute capability 9 it has yet another kernel for a single group a row.
  return width % 8 == 0 && !(q.mode == "affine" && q.group >= width);
}

// Up to how many rows the matrix-vector kernel, on a few rows at a time, is faster than a dense product.
constexpr int kMostRowsInBlocks = 14;

bool dequantizes(const Quantization& q, int width, int64_t rows) {
  return !takes_vector_kernel(q, width) || rows > kMostRowsInBlocks;
}
// How many rows of a matrix are dequantized at once.
int height_at_once(int width, int64_t item) { return std::max(int(kMostMatrix / (width * item)) / 64, 1) * 64; }

mx::array multiply_on_gpu(Step& step, const Op& op, const Quantization& q, const mx::array& given) {
  auto s = step.stream;
  auto w = step.in(op, 1), scales = step.in(op, 2);
  auto biases = step.maybe(op, 3);
  const int width = given.shape()[int(given.ndim()) - 1], rows = int(given.size()) / width;
  auto by_vector = [&](const mx::array& x) {
    return mx::quantized_matmul(x, w, scales, biases, true, q.group, q.bits, q.mode, s);
  };
  if (dequantizes(q, width, rows)) {
    const int height = w.shape()[0], most = height_at_once(width, int64_t(given.itemsize()));
    std::vector<mx::array> parts;
    for (int first = 0; first < height; first += most) {
      auto rows_of = [&](const mx::array& a) {
        const int end = std::min(height, first + most);
        return most >= height ? a : mx::slice(a, {first, 0}, {end, a.shape()[1]}, s);
      };
      auto dense = step.scratch.dequantize(rows_of(w), rows_of(scales), biases ? std::optional(rows_of(*biases)) : biases,
                                           q.mode, q.bits, q.group, given.dtype(), s);
      parts.push_back(mx::matmul(given, mx::transpose(dense, s), s));
      step.scratch.read_by(parts.back());
    }
    return parts.size() == 1 ? parts[0] : mx::concatenate(std::move(parts), -1, s);
  }
  if (rows <= kMostRows) return by_vector(given);
  auto flat = mx::reshape(given, {rows, width}, s);
  std::vector<mx::array> parts;
  const int count = (rows + kMostRows - 1) / kMostRows;
  for (int i = 0; i < count; i++)
    parts.push_back(by_vector(mx::slice(flat, {rows * i / count, 0}, {rows * (i + 1) / count, width}, s)));
  auto y = mx::concatenate(std::move(parts), 0, s);
  mx::Shape shape = given.shape();
  shape.back() = y.shape()[1];
  return mx::reshape(y, shape, s);
}

// gate and up may be halves of a wider array.
mx::array gpu_swiglu(const mx::array& gate, const mx::array& up, mx::Stream s) {
  const int width = gate.shape().back();
  const int rows = int(gate.size()) / width, dtype = gpu_dtype(gate.dtype());
  GpuLaunch launch{"swiglu", unsigned(rows), blocks(width), kThreads, {width, dtype}, true};
  return gpu_call(launch, {gate, up}, gate.shape(), gate.dtype(), s);
}

}  // namespace

Quantization::Quantization(const Op& op)
    : dense(op.integer(0) == MLXSHIM_QUANT_NONE),
      mode(mode_name(op.integer(0))),
      bits(int(op.integer(1))),
      group(int(op.integer(2))) {}

int64_t dequantized_bytes(const Program& program, const Op& linear) {
  const Quantization q(linear);
  const Type &x = program.types[size_t(linear.inputs[0])], &w = program.types[size_t(linear.inputs[1])];
  const int64_t rows = x.elements() / x.last(), item = dtype_size(x.dtype);
  if (q.dense || !dequantizes(q, int(x.last()), rows)) return 0;
  return std::min<int64_t>(w.dims[0], height_at_once(int(x.last()), item)) * x.last() * item;
}

void run_embed(Step& step, const Op& op, const Prepared&) {
  Quantization q(op);
  auto ids = step.in(op, 0);
  if (step.on_gpu() && (q.dense || q.mode == "affine")) return step.set(op, embed_on_gpu(step, op, q));
  auto take = [&](const mx::array& a) {
    return step.on_gpu() ? gpu_take(a, ids, step.stream) : mx::take(a, ids, 0, step.stream);
  };
  auto rows = take(step.in(op, 1));
  if (q.dense) return step.set(op, rows);
  auto scales = take(step.in(op, 2));
  std::optional<mx::array> biases;
  if (op.has(3)) biases = take(step.in(op, 3));
  mx::Dtype dtype = to_mlx(step.type_out(op).dtype);
  step.set(op, mx::dequantize(rows, scales, biases, q.group, q.bits, q.mode, std::nullopt, dtype, step.stream));
}

Prepared prepare_linear(const Program& program, const Op& op, const std::vector<mx::array>& weights,
                        mx::Stream stream) {
  Prepared prepared;
  const Quantization q(op);
  if (!q.dense && stream.device == mx::Device::gpu) gpu_prepare(GpuScratch::variant(q.mode, q.bits), stream.device);
  if (q.dense)
    prepared.arrays.push_back(mx::transpose(weights[size_t(op.inputs[1] - program.input_count)], stream));
  mx::eval(prepared.arrays);
  return prepared;
}

namespace {

mx::array multiply_quantized(Step& step, const Op& op, const Quantization& q, const mx::array& x) {
  const bool one_row = int64_t(x.size()) == x.shape(-1);
  if (takes_cpu_ops(x, step.stream) && q.mode == "affine" && !one_row)
    return cpu_quantized_matmul(x, step.in(op, 1), step.in(op, 2), step.in(op, 3), q.group, q.bits, step.stream);
  return mx::quantized_matmul(x, step.in(op, 1), step.in(op, 2), step.maybe(op, 3), true, q.group, q.bits, q.mode,
                              step.stream);
}

}  // namespace

void run_linear(Step& step, const Op& op, const Prepared& prepared) {
  Quantization q(op);
  auto x = step.in(op, 0);
  if (!q.dense) {
    auto y = step.on_gpu() ? multiply_on_gpu(step, op, q, x) : multiply_quantized(step, op, q, x);
    return step.set(op, op.has(4) ? mx::add(y, step.in(op, 4), step.stream) : y);
  }
  const auto& w = prepared.arrays[0];
  step.set(op, op.has(4) ? mx::addmm(step.in(op, 4), x, w, 1.f, 1.f, step.stream) : mx::matmul(x, w, step.stream));
}

void run_rms_norm(Step& step, const Op& op, const Prepared&) {
  auto x = step.in(op, 0);
  auto w = step.maybe(op, 1);
  const float eps = float(op.real(0));
  step.set(op, takes_cpu_ops(x, step.stream) ? cpu_rms_norm(x, w, eps, step.stream)
                                             : mx::fast::rms_norm(x, w, eps, step.stream));
}

Prepared prepare_rope(const Program& program, const Op& op, const std::vector<mx::array>& weights, mx::Stream stream) {
  if (stream.device != mx::Device::cpu) return {};
  std::optional<mx::array> periods;
  if (op.has(2)) periods = weights[size_t(op.inputs[2] - program.input_count)];
  Prepared prepared{{rope_frequencies(int(op.integer(0)), float(op.real(2)), periods, stream)}};
  mx::eval(prepared.arrays);
  return prepared;
}

void run_rope(Step& step, const Op& op, const Prepared& prepared) {
  auto x = step.in(op, 0);
  const int tokens = x.shape(0), heads = x.shape(1), width = x.shape(2), dims = int(op.integer(0));
  const float mscale = float(op.real(4));
  if (takes_cpu_ops(x, step.stream)) {
    RopeFacts facts{dims, op.integer(1) != 0, float(op.real(3)), mscale};
    return step.set(op, cpu_rope(x, step.in(op, 1), prepared.arrays[0], facts, step.stream));
  }
  if (mscale != 1) {
    auto turned = dims == width ? x : mx::slice(x, {0, 0, 0}, {tokens, heads, dims}, step.stream);
    turned = mx::multiply(turned, mx::array(mscale, x.dtype()), step.stream);
    x = dims == width ? turned
                      : mx::concatenate({turned, mx::slice(x, {0, 0, dims}, {tokens, heads, width}, step.stream)}, 2,
                                        step.stream);
  }
  // Each token is a sequence of its own to MLX, so that each may have any position.
  auto periods = step.maybe(op, 2);
  auto base = periods ? std::nullopt : std::optional(float(op.real(2)));
  auto y = mx::fast::rope(mx::reshape(x, {tokens, heads, 1, width}, step.stream), dims, op.integer(1) != 0, base,
                          float(op.real(3)), step.in(op, 1), periods, step.stream);
  step.set(op, mx::reshape(y, {tokens, heads, width}, step.stream));
}

void run_add(Step& step, const Op& op, const Prepared&) {
  step.set(op, mx::add(step.in(op, 0), step.in(op, 1), step.stream));
}

void run_multiply(Step& step, const Op& op, const Prepared&) {
  step.set(op, mx::multiply(step.in(op, 0), step.in(op, 1), step.stream));
}

void run_silu(Step& step, const Op& op, const Prepared&) {
  auto x = step.in(op, 0);
  step.set(op, mx::multiply(x, mx::sigmoid(x, step.stream), step.stream));
}

void run_swiglu(Step& step, const Op& op, const Prepared&) {
  auto gate = step.in(op, 0);
  if (takes_cpu_ops(gate, step.stream)) return step.set(op, cpu_swiglu(gate, step.in(op, 1), step.stream));
  if (step.on_gpu()) return step.set(op, gpu_swiglu(gate, step.in(op, 1), step.stream));
  auto silu = mx::multiply(gate, mx::sigmoid(gate, step.stream), step.stream);
  step.set(op, mx::multiply(silu, step.in(op, 1), step.stream));
}

void run_slice(Step& step, const Op& op, const Prepared&) {
  auto x = step.in(op, 0);
  mx::Shape from(x.shape().size(), 0), to = x.shape();
  from.back() = int32_t(op.integer(0));
  to.back() = int32_t(op.integer(0) + op.integer(1));
  step.set(op, mx::slice(x, from, to, step.stream));
}

void run_reshape(Step& step, const Op& op, const Prepared&) {
  step.set(op, mx::reshape(step.in(op, 0), step.shape_out(op), step.stream));
}

void run_gather_rows(Step& step, const Op& op, const Prepared&) {
  auto x = step.in(op, 0);
  const int64_t n = step.type_out(op).live(step.run.counts).dims[0];
  // Rows that follow each other are a view, and all rows are x itself.
  if (step.program.is_input(op.inputs[1])) {
    const int32_t* rows = step.run.ints(op.inputs[1]);
    bool run = true;
    for (int64_t i = 1; i < n; i++) run = run && rows[i] == rows[0] + i;
    if (run && n == x.shape(0)) return step.set(op, x);
    if (run) return step.set(op, mx::slice(x, {rows[0], 0}, {int32_t(rows[0] + n), x.shape(1)}, step.stream));
  }
  if (step.on_gpu() && mx::issubdtype(x.dtype(), mx::floating)) {
    const int width = x.shape()[1], dtype = gpu_dtype(x.dtype());
    GpuLaunch launch{"take_rows", unsigned(n), blocks(width), kThreads, {width, dtype, dtype}};
    return step.set(op, gpu_call(launch, {step.in(op, 1), x}, {int32_t(n), width}, x.dtype(), step.stream));
  }
  step.set(op, mx::take(x, step.in(op, 1), 0, step.stream));
}

void run_cast(Step& step, const Op& op, const Prepared&) { step.set(op, step.in(op, 0)); }

}  // namespace mlxcel
