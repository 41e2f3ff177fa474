#include "kv_write.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>
#include <cstring>

#include "cuda/gpu.h"

namespace mlxcel {

namespace {

// The memory of a cache [1, heads, capacity, dim] or of rows [T, heads, dim], for the thread that does the work.
struct Plane {
  std::shared_ptr<mx::array::Data> owner;
  char* data;
  int64_t heads, dim, head_stride, row_stride;  // strides in bytes
};

Plane rows_of(mx::array a) {
  const int64_t item = int64_t(a.itemsize());
  return {a.data_shared_ptr(), a.data<char>(), a.shape(1), a.shape(2), a.strides(1) * item, a.strides(0) * item};
}

Plane cache_of(mx::array& a) {
  const int64_t item = int64_t(a.itemsize());
  return {a.data_shared_ptr(), a.data<char>(), a.shape(1), a.shape(3), a.strides(1) * item, a.strides(2) * item};
}

void copy_rows(const Plane& to, const Plane& from, const KvSpan& span, size_t row_bytes) {
  for (int64_t h = 0; h < to.heads; h++)
    for (int64_t i = 0; i < span.rows; i++)
      std::memcpy(to.data + h * to.head_stride + (span.position + i) * to.row_stride,
                  from.data + h * from.head_stride + (span.first_row + i) * from.row_stride, row_bytes);
}

// inputs: k, v, then keys and values of each cache; outputs: the keys and values.
class KvWrite : public mx::Primitive {
 public:
  KvWrite(mx::Stream stream, std::vector<KvSpan> spans) : Primitive(stream), spans_(std::move(spans)) {}

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& out) override {
    std::vector<Plane> caches;
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(in[0]);
    encoder.set_input_array(in[1]);
    for (size_t i = 0; i < out.size(); i++) {
      out[i].copy_shared_buffer(in[i + 2]);
      encoder.set_output_array(out[i]);
      caches.push_back(cache_of(out[i]));
    }
    encoder.dispatch(
        [caches = std::move(caches), k = rows_of(in[0]), v = rows_of(in[1]), spans = spans_, item = in[0].itemsize()] {
          for (size_t s = 0; s < spans.size(); s++) {
            copy_rows(caches[2 * s], k, spans[s], size_t(k.dim) * item);
            copy_rows(caches[2 * s + 1], v, spans[s], size_t(v.dim) * item);
          }
        });
  }

  void eval_gpu(const std::vector<mx::array>& in, std::vector<mx::array>& out) override {
    for (size_t i = 0; i < out.size(); i++) out[i].copy_shared_buffer(in[i + 2]);
    gpu_kv_write(out, spans_, in[0], in[1], stream());
  }

  const char* name() const override { return "KvWrite"; }
  bool is_equivalent(const Primitive&) const override { return false; }

 private:
  std::vector<KvSpan> spans_;
};

// Rows whose elements follow each other, in the cache's type.
mx::array as_rows(const mx::array& a, const mx::array& cache, mx::Stream stream) {
  return a.dtype() == cache.dtype() ? a : mx::astype(a, cache.dtype(), stream);
}

}  // namespace

void kv_write(std::vector<Cache*> caches, std::vector<KvSpan> spans, const mx::array& k, const mx::array& v,
              mx::Stream stream) {
  std::vector<mx::array> inputs{as_rows(k, *caches[0]->keys, stream), as_rows(v, *caches[0]->values, stream)};
  std::vector<mx::Shape> shapes;
  for (Cache* cache : caches)
    for (const auto* part : {&cache->keys, &cache->values}) {
      inputs.push_back(**part);
      shapes.push_back((*part)->shape());
    }
  std::vector<mx::Dtype> dtypes(shapes.size(), inputs[0].dtype());
  auto made =
      mx::array::make_arrays(std::move(shapes), dtypes, std::make_shared<KvWrite>(stream, std::move(spans)), inputs);
  for (size_t s = 0; s < caches.size(); s++) {
    caches[s]->keys = made[2 * s];
    caches[s]->values = made[2 * s + 1];
  }
}

}  // namespace mlxcel
