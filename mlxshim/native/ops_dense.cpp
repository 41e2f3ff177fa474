// Embedding, normalization, rotation and what is computed element by element.
#include <cmath>
#include <cstring>

#include "convert.h"
#include "dtype.h"
#include "row_ops.h"
#include "status.h"

namespace mlxcel::native {

namespace {

class Embed : public RowOp {
 public:
  Embed(Rows ids, const Matrix& table, Rows out) : ids_(ids), table_(table), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) table_.row(*step.row<int32_t>(ids_, r), step.row(out_, r));
  }
  std::string describe() const override { return text("embed [", table_.rows, ", ", table_.columns, "]"); }

 private:
  Rows ids_;
  const Matrix& table_;
  Rows out_;
};

// A row of x may hold several vectors, each of which is prepared by itself.
class Prepare : public RowOp {
 public:
  Prepare(Rows x, int64_t vectors, const Matrix& matrix, Rows out)
      : x_(x), vectors_(vectors), matrix_(matrix), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    if (vectors_ == 1) return matrix_.prepare(step.row(x_, begin), x_.stride, end - begin, step.row<char>(out_, begin));
    for (int64_t r = begin; r < end; r++)
      matrix_.prepare(step.row(x_, r), matrix_.columns, vectors_, step.row<char>(out_, r));
  }
  std::string describe() const override { return text("prepare [", matrix_.columns, "]"); }

 private:
  Rows x_;
  int64_t vectors_;
  const Matrix& matrix_;
  Rows out_;
};

class RmsNorm : public RowOp {
 public:
  RmsNorm(Rows x, int64_t vectors, const float* w, float eps, Rows out)
      : x_(x), vectors_(vectors), w_(w), eps_(eps), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const int64_t n = x_.width / vectors_;
    for (int64_t r = begin; r < end; r++)
      for (int64_t i = 0; i < vectors_; i++)
        step.vectors.rms_norm(step.row(x_, r) + i * n, w_, eps_, n, step.row(out_, r) + i * n);
  }
  std::string describe() const override { return text("rms_norm [", vectors_, ", ", x_.width / vectors_, "]"); }

 private:
  Rows x_;
  int64_t vectors_;
  const float* w_;
  float eps_;
  Rows out_;
};

using BinaryKernel = void (*VectorKernels::*)(const float*, const float*, int64_t, float*);

class Binary : public RowOp {
 public:
  Binary(const char* name, BinaryKernel kernel, Rows a, Rows b, Rows out)
      : name_(name), kernel_(kernel), a_(a), b_(b), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++)
      (step.vectors.*kernel_)(step.row(a_, r), step.row(b_, r), out_.width, step.row(out_, r));
  }
  std::string describe() const override { return text(name_, " [", out_.width, "]"); }

 private:
  const char* name_;
  BinaryKernel kernel_;
  Rows a_, b_, out_;
};

class Silu : public RowOp {
 public:
  Silu(Rows x, Rows out) : x_(x), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) step.vectors.silu(step.row(x_, r), out_.width, step.row(out_, r));
  }
  std::string describe() const override { return text("silu [", out_.width, "]"); }

 private:
  Rows x_, out_;
};

class Copy : public RowOp {
 public:
  Copy(Rows x, int64_t vectors, int64_t start, Rows out, int64_t size)
      : x_(x), vectors_(vectors), start_(start), out_(out), size_(size) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const int64_t from = x_.width / vectors_, to = out_.width / vectors_;
    for (int64_t r = begin; r < end; r++)
      for (int64_t i = 0; i < vectors_; i++)
        std::memcpy(step.row<char>(bytes(out_), r) + i * to * size_,
                    step.row<char>(bytes(x_), r) + (i * from + start_) * size_, size_t(to * size_));
  }
  std::string describe() const override { return text("copy [", out_.width, "]"); }

 private:
  Rows bytes(Rows rows) const { return {rows.place, rows.width * size_, rows.stride * size_}; }

  Rows x_;
  int64_t vectors_, start_;
  Rows out_;
  int64_t size_;
};

class GatherRows : public RowOp {
 public:
  GatherRows(Rows x, Rows rows, Rows out, int64_t size) : x_(x), rows_(rows), out_(out), size_(size) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const Rows from{x_.place, 0, x_.stride * size_}, to{out_.place, 0, out_.stride * size_};
    for (int64_t r = begin; r < end; r++)
      std::memcpy(step.row<char>(to, r), step.row<char>(from, *step.row<int32_t>(rows_, r)),
                  size_t(out_.width * size_));
  }
  std::string describe() const override { return text("gather_rows [", out_.width, "]"); }

 private:
  Rows x_, rows_, out_;
  int64_t size_;
};

class Cast : public RowOp {
 public:
  Cast(Rows x, int64_t dtype, Rows out) : x_(x), dtype_(dtype), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) {
      const float* x = step.row(x_, r);
      float* y = step.row(out_, r);
      switch (dtype_) {
        case MLXSHIM_DTYPE_F16:
          for (int64_t i = 0; i < out_.width; i++) y[i] = half_to_float(float_to_half(x[i]));
          break;
        case MLXSHIM_DTYPE_BF16:
          for (int64_t i = 0; i < out_.width; i++) y[i] = bfloat_to_float(float_to_bfloat(x[i]));
          break;
        default: std::memcpy(y, x, size_t(out_.width) * sizeof(float));
      }
    }
  }
  std::string describe() const override { return text("round to ", dtype_name(dtype_), " [", out_.width, "]"); }

 private:
  Rows x_;
  int64_t dtype_;
  Rows out_;
};

class Widen : public RowOp {
 public:
  Widen(Rows x, int64_t dtype, Rows out) : x_(x), dtype_(dtype), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const Rows bytes{x_.place, 0, x_.stride * dtype_size(dtype_)};
    for (int64_t r = begin; r < end; r++)
      convert_floats(step.row<char>(bytes, r), dtype_, step.row(out_, r), MLXSHIM_DTYPE_F32, size_t(out_.width));
  }
  std::string describe() const override { return text("widen ", dtype_name(dtype_), " [", out_.width, "]"); }

 private:
  Rows x_;
  int64_t dtype_;
  Rows out_;
};

class MakeAngles : public RowOp {
 public:
  MakeAngles(Rows positions, Angles angles, Rows out) : positions_(positions), angles_(std::move(angles)), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const size_t n = angles_.periods.size();
    for (int64_t r = begin; r < end; r++) {
      // The angle is rounded to f32, as the models' own code does; its cosine and sine are exact to f32.
      const float at = float(*step.row<int32_t>(positions_, r)) * angles_.scale;
      float* y = step.row(out_, r);
      for (size_t i = 0; i < n; i++) {
        const double angle = at / angles_.periods[i];
        y[i] = float(std::cos(angle));
        y[n + i] = float(std::sin(angle));
      }
    }
  }
  std::string describe() const override { return text("angles [", angles_.periods.size(), "]"); }

 private:
  Rows positions_;
  Angles angles_;
  Rows out_;
};

class Rope : public RowOp {
 public:
  Rope(Rows x, Rows angles, Turn turn, Rows out) : x_(x), angles_(angles), turn_(turn), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const int64_t pairs = turn_.dims / 2;
    for (int64_t r = begin; r < end; r++) {
      const float *cosines = step.row(angles_, r), *sines = cosines + pairs;
      for (int64_t h = 0; h < turn_.heads; h++) {
        const float* x = step.row(x_, r) + h * turn_.width;
        float* y = step.row(out_, r) + h * turn_.width;
        if (turn_.traditional)
          for (int64_t i = 0; i < pairs; i++) {
            const float a = x[2 * i] * turn_.mscale, b = x[2 * i + 1] * turn_.mscale;
            y[2 * i] = a * cosines[i] - b * sines[i];
            y[2 * i + 1] = a * sines[i] + b * cosines[i];
          }
        else
          step.vectors.rotate(x, x + pairs, cosines, sines, turn_.mscale, pairs, y, y + pairs);
        std::memcpy(y + turn_.dims, x + turn_.dims, size_t(turn_.width - turn_.dims) * sizeof(float));
      }
    }
  }
  std::string describe() const override { return text("rope [", turn_.heads, ", ", turn_.width, "]"); }

 private:
  Rows x_, angles_;
  Turn turn_;
  Rows out_;
};

// Appends rows of keys, which lie across in a page, and of values to the state, whose pages are open.
class KvWrite : public RowOp {
 public:
  KvWrite(Rows k, Rows v, int64_t layer) : k_(k), v_(v), layer_(layer) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    const auto& layer = step.state->shape.layers[size_t(layer_)];
    for (int64_t r = begin; r < end; r++) {
      const int64_t position = step.position_of(r), at = position % kPageTokens;
      const Page& page = step.state->page(step.slots()[step.sequence_of[r]], layer_, position / kPageTokens);
      const float *k = step.row(k_, r), *v = step.row(v_, r);
      for (int64_t h = 0; h < layer.kv_heads; h++) {
        float* line = page.keys() + (h * kPageTokens + at / kLineKeys * kLineKeys) * layer.key_dim + at % kLineKeys;
        for (int64_t i = 0; i < layer.key_dim; i++) line[i * kLineKeys] = k[h * layer.key_dim + i];
      }
      for (int64_t h = 0; h < layer.kv_heads; h++)
        std::memcpy(page.values() + (h * kPageTokens + at) * layer.value_dim, v + h * layer.value_dim,
                    size_t(layer.value_dim) * sizeof(float));
    }
  }
  std::string describe() const override { return text("kv_write layer ", layer_); }

 private:
  Rows k_, v_;
  int64_t layer_;
};

}  // namespace

RowOpPointer make_embed(Rows ids, const Matrix& table, Rows out) { return std::make_unique<Embed>(ids, table, out); }
RowOpPointer make_prepare(Rows x, int64_t vectors, const Matrix& matrix, Rows out) {
  return std::make_unique<Prepare>(x, vectors, matrix, out);
}
RowOpPointer make_rms_norm(Rows x, int64_t vectors, const float* w, float eps, Rows out) {
  return std::make_unique<RmsNorm>(x, vectors, w, eps, out);
}
RowOpPointer make_binary(const char* name, BinaryKernel kernel, Rows a, Rows b, Rows out) {
  return std::make_unique<Binary>(name, kernel, a, b, out);
}
RowOpPointer make_silu(Rows x, Rows out) { return std::make_unique<Silu>(x, out); }
RowOpPointer make_copy(Rows x, int64_t vectors, int64_t start, Rows out, int64_t size) {
  return std::make_unique<Copy>(x, vectors, start, out, size);
}
RowOpPointer make_gather_rows(Rows x, Rows rows, Rows out, int64_t size) {
  return std::make_unique<GatherRows>(x, rows, out, size);
}
RowOpPointer make_cast(Rows x, int64_t dtype, Rows out) { return std::make_unique<Cast>(x, dtype, out); }
RowOpPointer make_widen(Rows x, int64_t dtype, Rows out) { return std::make_unique<Widen>(x, dtype, out); }
RowOpPointer make_angles(Rows positions, Angles angles, Rows out) {
  return std::make_unique<MakeAngles>(positions, std::move(angles), out);
}
RowOpPointer make_rope(Rows x, Rows angles, Turn turn, Rows out) {
  return std::make_unique<Rope>(x, angles, turn, out);
}
RowOpPointer make_kv_write(Rows k, Rows v, int64_t layer) { return std::make_unique<KvWrite>(k, v, layer); }

}  // namespace mlxcel::native
