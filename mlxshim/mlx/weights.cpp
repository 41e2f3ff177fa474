#include "weights.h"

#include <algorithm>
#include <cstring>

#include "../common/convert.h"
#include "cuda/gpu.h"
#include "dtype.h"
#include "status.h"

namespace mlxcel {

namespace {

// Hands the elements of a weight, as they are kept, to `take`, in order and in pieces of some megabytes.
template <class Take>
void in_pieces(const WeightFacts& facts, const WeightSource& source, Take&& take) {
  const int64_t n = facts.type.elements(), kept = dtype_size(facts.type.dtype), stored = dtype_size(facts.stored_dtype);
  const int64_t piece = std::min<int64_t>(n, (int64_t(16) << 20) / stored);
  std::vector<char> read(size_t(piece * stored)), converted;
  if (facts.type.dtype != facts.stored_dtype) converted.resize(size_t(piece * kept));
  for (int64_t i = 0; i < n; i += piece) {
    const int64_t m = std::min(piece, n - i);
    source.read_fast(read.data(), i * stored, m * stored);
    if (!converted.empty())
      convert_floats(read.data(), facts.stored_dtype, converted.data(), facts.type.dtype, size_t(m));
    take(converted.empty() ? read.data() : converted.data(), i * kept, m * kept);
  }
}

}  // namespace

mx::array load_to_host(const WeightFacts& facts, const WeightSource& source) {
  const int64_t bytes = facts.type.elements() * dtype_size(facts.type.dtype);
  auto buffer = mx::allocator::malloc(size_t(bytes));
  char* to = static_cast<char*>(buffer.buffer().raw_ptr());
  if (facts.type.dtype == facts.stored_dtype)
    source.read_fast(to, 0, bytes);
  else
    in_pieces(facts, source, [&](const char* data, int64_t at, int64_t n) { std::memcpy(to + at, data, size_t(n)); });
  return mx::array(std::move(buffer), shape_of(facts.type), to_mlx(facts.type.dtype));
}

namespace {

mx::array load_to_device(const WeightFacts& facts, const WeightSource& source, mx::Stream stream) {
  mx::array made = gpu_empty(shape_of(facts.type), to_mlx(facts.type.dtype), stream);
  if (source.made_up())
    gpu_fill(made, source.seed(), stream);
  else
    in_pieces(facts, source,
              [&](const char* data, int64_t at, int64_t n) { gpu_upload(made, at, data, n, stream); });
  return made;
}

}  // namespace

void MlxWeights::load(const WeightFacts& facts, const WeightSource& source) {
  if (context_.on_gpu()) context_.reserve(facts.type.elements() * dtype_size(facts.type.dtype));
  arrays_.push_back(context_.on_gpu() ? load_to_device(facts, source, context_.stream) : load_to_host(facts, source));
}

int64_t MlxWeights::host_bytes() const {
  int64_t sum = 0;
  for (const auto& a : arrays_) sum += gpu_host_bytes(a);
  return sum;
}

}  // namespace mlxcel
