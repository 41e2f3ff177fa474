#include "cpu_ops.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "sample.h"

namespace mlxcel {

namespace {

// The elements of an array of up to three dimensions as [outer, middle, inner], whatever its strides.
template <class T>
struct View {
  T* data;
  int64_t outer = 1, middle = 1, inner = 1;
  int64_t outer_step = 0, middle_step = 0, step = 1;

  T* row(int64_t o, int64_t m) const { return data + o * outer_step + m * middle_step; }
};

template <class T>
View<const T> view(const mx::array& a) {
  View<const T> v{a.data<T>()};
  const int n = int(a.ndim());
  v.inner = a.shape(n - 1), v.step = a.strides(n - 1);
  if (n > 1) v.middle = a.shape(n - 2), v.middle_step = a.strides(n - 2);
  if (n > 2) v.outer = a.shape(n - 3), v.outer_step = a.strides(n - 3);
  return v;
}

// What a primitive does to its output, on MLX's CPU thread; bound to the inputs' memory when they have some.
using Work = std::function<void(void* out)>;
using Bind = std::function<Work(const std::vector<mx::array>& inputs)>;

class CpuOp : public mx::Primitive {
 public:
  CpuOp(mx::Stream stream, const char* name, Bind bind) : Primitive(stream), name_(name), bind_(std::move(bind)) {}

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& out) override {
    out[0].set_data(mx::allocator::malloc(out[0].nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& a : in) encoder.set_input_array(a);
    encoder.set_output_array(out[0]);
    // MLX keeps the inputs' memory until this is done; the output's we keep ourselves.
    encoder.dispatch([work = bind_(in), to = out[0].data<void>(), owner = out[0].data_shared_ptr()] { work(to); });
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name_) + " is an op of the CPU only");
  }
  const char* name() const override { return name_; }
  bool is_equivalent(const Primitive&) const override { return false; }

 private:
  const char* name_;
  Bind bind_;
};

// A new array of f32 that is shaped like the first input.
mx::array cpu_op(const char* name, std::vector<mx::array> inputs, mx::Stream stream, Bind bind) {
  mx::Shape shape = inputs[0].shape();
  return mx::array(std::move(shape), mx::float32, std::make_shared<CpuOp>(stream, name, std::move(bind)),
                   std::move(inputs));
}

void rms_norm(View<const float> x, const float* w, int64_t w_step, float eps, float* out) {
  for (int64_t o = 0; o < x.outer; o++)
    for (int64_t m = 0; m < x.middle; m++, out += x.inner) {
      const float* row = x.row(o, m);
      double sum = 0;
      for (int64_t i = 0; i < x.inner; i++) sum += double(row[i * x.step]) * row[i * x.step];
      const float factor = 1.f / std::sqrt(float(sum / double(x.inner)) + eps);
      for (int64_t i = 0; i < x.inner; i++) out[i] = row[i * x.step] * factor * (w ? w[i * w_step] : 1.f);
    }
}

void rope(View<const float> x, View<const int32_t> positions, View<const float> frequencies, RopeFacts f, float* out) {
  const int64_t half = f.dims / 2;
  const int64_t apart = f.traditional ? 1 : half, pair_step = f.traditional ? 2 : 1;
  std::vector<float> cosines(static_cast<size_t>(half)), sines(static_cast<size_t>(half));
  for (int64_t t = 0; t < x.outer; t++) {
    const float position = float(positions.data[t * positions.step]) * f.scale;
    for (size_t i = 0; i < size_t(half); i++) {
      const float angle = position * frequencies.data[int64_t(i) * frequencies.step];
      cosines[i] = std::cos(angle) * f.mscale;
      sines[i] = std::sin(angle) * f.mscale;
    }
    for (int64_t h = 0; h < x.middle; h++, out += x.inner) {
      const float* row = x.row(t, h);
      for (int64_t i = 0; i < half; i++) {
        const int64_t at = i * pair_step;
        const float a = row[at * x.step], b = row[(at + apart) * x.step];
        out[at] = a * cosines[size_t(i)] - b * sines[size_t(i)];
        out[at + apart] = a * sines[size_t(i)] + b * cosines[size_t(i)];
      }
      for (int64_t i = f.dims; i < x.inner; i++) out[i] = row[i * x.step];
    }
  }
}

void swiglu(View<const float> gate, View<const float> up, float* out) {
  for (int64_t o = 0; o < gate.outer; o++)
    for (int64_t m = 0; m < gate.middle; m++, out += gate.inner) {
      const float *g = gate.row(o, m), *u = up.row(o, m);
      for (int64_t i = 0; i < gate.inner; i++)
        out[i] = g[i * gate.step] / (1.f + std::exp(-g[i * gate.step])) * u[i * up.step];
    }
}

constexpr int kLanes = 8;  // columns of a product that are computed together

// Unpacks a row of a matrix into every eighth place of out. Eight values of any width lie in as many bytes as a value
// has bits, the first one in the lowest bits.
template <int bits>
void dequantize(const uint32_t* packed, const float* scales, const float* biases, int64_t groups, int group,
                float* out) {
  constexpr uint64_t mask = (uint64_t(1) << bits) - 1;
  auto bytes = reinterpret_cast<const unsigned char*>(packed);
  for (int64_t g = 0; g < groups; g++)
    for (int i = 0; i < group; i += 8, bytes += bits, out += 8 * kLanes) {
      uint64_t eight = 0;
      std::memcpy(&eight, bytes, bits);
      for (int k = 0; k < 8; k++) out[k * kLanes] = scales[g] * float(int32_t(eight >> (k * bits) & mask)) + biases[g];
    }
}

auto dequantize_of(int bits) {
  switch (bits) {
    case 2: return dequantize<2>;
    case 3: return dequantize<3>;
    case 4: return dequantize<4>;
    case 5: return dequantize<5>;
    case 6: return dequantize<6>;
    default: return dequantize<8>;
  }
}

// Some rows of x, `width` apart, times eight columns [width, 8]; out's rows are `pitch` apart.
template <int rows>
void multiply(const float* x, int64_t width, const float* columns, int lanes, float* out, int64_t pitch) {
  __m128 low[rows], high[rows];
  for (int r = 0; r < rows; r++) low[r] = high[r] = _mm_setzero_ps();
  for (int64_t k = 0; k < width; k++) {
    const __m128 a = _mm_loadu_ps(columns + k * kLanes), b = _mm_loadu_ps(columns + k * kLanes + 4);
    for (int r = 0; r < rows; r++) {
      const __m128 value = _mm_set1_ps(x[r * width + k]);
      low[r] = _mm_add_ps(low[r], _mm_mul_ps(value, a));
      high[r] = _mm_add_ps(high[r], _mm_mul_ps(value, b));
    }
  }
  for (int r = 0; r < rows; r++) {
    float sums[kLanes];
    _mm_storeu_ps(sums, low[r]);
    _mm_storeu_ps(sums + 4, high[r]);
    std::copy_n(sums, lanes, out + r * pitch);
  }
}

// x [rows, D] contiguous, out [rows, N].
void quantized_matmul(const float* x, int64_t rows, View<const uint32_t> packed, View<const float> scales,
                      View<const float> biases, int group, int bits, float* out) {
  const int64_t width = scales.inner * group, n = packed.middle;
  const auto unpack = dequantize_of(bits);
  std::vector<float> columns(size_t(width * kLanes));
  for (int64_t at = 0; at < n; at += kLanes) {
    const int lanes = int(std::min<int64_t>(kLanes, n - at));
    for (int i = 0; i < lanes; i++)
      unpack(packed.row(0, at + i), scales.row(0, at + i), biases.row(0, at + i), scales.inner, group, &columns[size_t(i)]);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) multiply<4>(x + r * width, width, columns.data(), lanes, out + r * n + at, n);
    for (; r < rows; r++) multiply<1>(x + r * width, width, columns.data(), lanes, out + r * n + at, n);
  }
}

}  // namespace

mx::array cpu_rms_norm(const mx::array& x, const std::optional<mx::array>& w, float eps, mx::Stream stream) {
  std::vector<mx::array> inputs{x};
  if (w) inputs.push_back(w->dtype() == mx::float32 ? *w : mx::astype(*w, mx::float32, stream));
  return cpu_op("CpuRmsNorm", std::move(inputs), stream, [eps](const std::vector<mx::array>& in) -> Work {
    auto weights = in.size() > 1 ? view<float>(in[1]) : View<const float>{nullptr};
    return [rows = view<float>(in[0]), weights, eps](void* out) {
      rms_norm(rows, weights.data, weights.step, eps, static_cast<float*>(out));
    };
  });
}

mx::array rope_frequencies(int dims, float base, const std::optional<mx::array>& periods, mx::Stream stream) {
  if (periods) return mx::reciprocal(*periods, stream);
  const int half = dims / 2;
  auto falling = mx::arange(0, -half, -1, mx::float32, stream);
  return mx::exp(mx::multiply(falling, mx::array(std::log(base) / float(half)), stream), stream);
}

mx::array cpu_rope(const mx::array& x, const mx::array& positions, const mx::array& frequencies, RopeFacts facts,
                   mx::Stream stream) {
  return cpu_op("CpuRope", {x, positions, frequencies}, stream, [facts](const std::vector<mx::array>& in) -> Work {
    return [rows = view<float>(in[0]), at = view<int32_t>(in[1]), turns = view<float>(in[2]), facts](void* out) {
      rope(rows, at, turns, facts, static_cast<float*>(out));
    };
  });
}

mx::array cpu_swiglu(const mx::array& gate, const mx::array& up, mx::Stream stream) {
  return cpu_op("CpuSwiglu", {gate, up}, stream, [](const std::vector<mx::array>& in) -> Work {
    return [g = view<float>(in[0]), u = view<float>(in[1])](void* out) { swiglu(g, u, static_cast<float*>(out)); };
  });
}

mx::array cpu_quantized_matmul(const mx::array& x, const mx::array& packed, const mx::array& scales,
                               const mx::array& biases, int group, int bits, mx::Stream stream) {
  mx::Shape shape = x.shape();
  const int64_t rows = int64_t(x.size()) / shape.back();
  shape.back() = packed.shape(0);
  auto bind = [rows, group, bits](const std::vector<mx::array>& in) -> Work {
    return [=, from = in[0].data<float>(), words = view<uint32_t>(in[1]), s = view<float>(in[2]),
            b = view<float>(in[3])](void* out) {
      quantized_matmul(from, rows, words, s, b, group, bits, static_cast<float*>(out));
    };
  };
  auto f32 = [stream](const mx::array& a) { return mx::contiguous(mx::astype(a, mx::float32, stream), false, stream); };
  return mx::array(std::move(shape), mx::float32, std::make_shared<CpuOp>(stream, "CpuQuantizedMatmul", std::move(bind)),
                   {f32(x), mx::contiguous(packed, false, stream), f32(scales), f32(biases)});
}

mx::array cpu_sample(const mx::array& logits, const mx::array& settings, mx::Stream stream) {
  auto bind = [](const std::vector<mx::array>& in) -> Work {
    return [l = view<float>(in[0]), s = view<float>(in[1])](void* out) {
      std::vector<float> row(size_t(l.inner));
      for (int64_t r = 0; r < l.middle; r++) {
        for (int64_t i = 0; i < l.inner; i++) row[size_t(i)] = l.row(0, r)[i * l.step];
        auto setting = [&](int64_t i) { return double(s.row(0, r)[i * s.step]); };
        static_cast<int32_t*>(out)[r] = sample_row(row, {setting(0), setting(1), setting(2), setting(3), setting(4)});
      }
    };
  };
  return mx::array({logits.shape(0)}, mx::int32, std::make_shared<CpuOp>(stream, "CpuSample", bind),
                   {logits, settings});
}

}  // namespace mlxcel
