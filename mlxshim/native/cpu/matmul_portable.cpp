// Products in plain C++ and f32, straight from the definition of the formats: the reference of every other level.
#include <cstring>
#include <vector>

#include "matmul_formats.h"
#include "matmul_levels.h"

namespace mlxcel::native {

namespace {

template <class T>
std::vector<T> copy(const void* from, int64_t n) {
  std::vector<T> to(static_cast<size_t>(n));
  if (n) std::memcpy(to.data(), from, to.size() * sizeof(T));
  return to;
}

class PortableMatrix : public Matrix {
 public:
  explicit PortableMatrix(const MatrixSource& s) : source(s) {
    rows = s.rows, columns = s.columns, members = s.members;
    const int64_t all = rows * members;
    MatrixSource::Buffer buffer;
    const MatrixSource::Rows from = s.from(0, all, buffer);
    weight = copy<uint8_t>(from.weight, all * s.weight_bytes());
    scales = copy<uint8_t>(from.scales, all * s.scale_bytes());
    if (s.mode == MLXSHIM_QUANT_AFFINE) biases = copy<uint8_t>(from.biases, all * s.scale_bytes());
    source.read = nullptr;
    source.weight = weight.data(), source.scales = scales.data(), source.biases = biases.data();
  }

  size_t bytes() const override { return weight.size() + scales.size() + biases.size(); }
  size_t prepared_bytes() const override { return (size_t(columns) * sizeof(float) + 63) / 64 * 64; }

  void prepare(const float* x, int64_t stride, int64_t count, void* prepared) const override {
    for (int64_t t = 0; t < count; t++)
      std::memcpy(static_cast<char*>(prepared) + size_t(t) * prepared_bytes(), x + t * stride,
                  size_t(columns) * sizeof(float));
  }

  void multiply(const void* prepared, int64_t count, int64_t begin, int64_t end, float* y, int64_t y_stride,
                int64_t member) const override {
    float w[kSpan];
    for (int64_t n = begin; n < end; n++) {
      for (int64_t t = 0; t < count; t++) y[t * y_stride + n] = 0;
      for (int64_t k = 0; k < columns; k += kSpan) {
        int64_t width = columns - k < kSpan ? columns - k : kSpan;
        decode(member * rows + n, k, width, w);
        for (int64_t t = 0; t < count; t++) {
          const void* row = static_cast<const char*>(prepared) + size_t(t) * prepared_bytes();
          const float* x = static_cast<const float*>(row) + k;
          float sum = 0;
          for (int64_t i = 0; i < width; i++) sum += w[i] * x[i];
          y[t * y_stride + n] += sum;
        }
      }
    }
  }

  int64_t row_block() const override { return 1; }
  void row(int64_t n, float* to) const override { decode(n, 0, columns, to); }
  bool prepared_like(const Matrix& other) const override {
    return dynamic_cast<const PortableMatrix*>(&other) && other.columns == columns;
  }
  const char* describe() const override { return "as stored, portable f32"; }

 private:
  static constexpr int64_t kSpan = 32;  // products that are summed before they are added to the result

  // The weights [k, k + width) of row n.
  void decode(int64_t n, int64_t k, int64_t width, float* to) const {
    if (source.mode == MLXSHIM_QUANT_NONE) {
      for (int64_t i = 0; i < width; i++) to[i] = float_at(source.weight, source.weight_dtype, n * columns + k + i);
      return;
    }
    const uint32_t* words = static_cast<const uint32_t*>(source.weight) + n * (columns * source.bits / 32);
    for (int64_t i = 0; i < width; i++) {
      uint32_t code = packed_at(words, source.bits, k + i);
      int64_t g = n * (columns / source.group) + (k + i) / source.group;
      switch (source.mode) {
        case MLXSHIM_QUANT_AFFINE:
          to[i] = float_at(source.scales, source.scale_dtype, g) * float(code) +
                  float_at(source.biases, source.scale_dtype, g);
          break;
        case MLXSHIM_QUANT_MXFP4: to[i] = float(e2m1_twice(code)) * 0.5f * e8m0(scales[size_t(g)]); break;
        case MLXSHIM_QUANT_MXFP8: to[i] = e4m3(code) * e8m0(scales[size_t(g)]); break;
        case MLXSHIM_QUANT_NVFP4: to[i] = float(e2m1_twice(code)) * 0.5f * e4m3(scales[size_t(g)]); break;
      }
    }
  }

  MatrixSource source;  // pointing into the copies
  std::vector<uint8_t> weight, scales, biases;
};

}  // namespace

std::unique_ptr<Matrix> pack_portable(const MatrixSource& source) { return std::make_unique<PortableMatrix>(source); }

}  // namespace mlxcel::native
