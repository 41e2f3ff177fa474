#include "weights.h"

#include <algorithm>

#include "convert.h"
#include "dtype.h"
#include "status.h"
#include "threads.h"

namespace mlxcel::native {

namespace {

// In what type a weight is kept. A narrower type that was asked for is a wish to save memory; a wider one is not
// heeded.
int64_t kept_dtype(const WeightFacts& facts) {
  const int64_t stored = facts.stored_dtype, asked = facts.type.dtype;
  if (!is_float(stored)) return stored;
  if (facts.type.ndim == 1 || stored == MLXSHIM_DTYPE_F64) return MLXSHIM_DTYPE_F32;
  return dtype_size(asked) < dtype_size(stored) ? asked : stored;
}

}  // namespace

void NativeWeights::load(const WeightFacts& facts, const WeightSource& source) {
  const int64_t n = facts.type.elements(), stored = facts.stored_dtype, dtype = kept_dtype(facts);
  Kept kept{dtype, Buffer(meter_, size_t(n * dtype_size(dtype))), {}, nullptr};
  constexpr int64_t kPiece = int64_t(1) << 16;  // elements
  // On all threads: most of the time goes into memory that is touched for the first time.
  parallel_for(threads_, (n + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end) {
    std::vector<char> piece;
    for (int64_t i = begin * kPiece; i < std::min(n, end * kPiece); i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      char* to = kept.bytes.data() + i * dtype_size(dtype);
      if (dtype == stored) {
        source.read(to, i * dtype_size(stored), m * dtype_size(stored));
      } else {
        piece.resize(size_t(m * dtype_size(stored)));
        source.read(piece.data(), i * dtype_size(stored), m * dtype_size(stored));
        convert_floats(piece.data(), stored, to, dtype, size_t(m));
      }
    }
  });
  kept_.push_back(std::move(kept));
}

const NativeWeights::Kept& NativeWeights::raw(int64_t index) const {
  const Kept& kept = kept_[size_t(index)];
  if (!kept.bytes)
    fail(MLXSHIM_ERR_UNSUPPORTED, "weight ", facts()[size_t(index)].name,
         " is packed as a matrix already and cannot be used in another way too");
  return kept;
}

std::unique_ptr<Matrix> NativeWeights::pack_of(const MatrixKey& key) const {
  const Type& type = types()[size_t(key.weight)];
  MatrixSource source;
  source.rows = type.dims[size_t(type.ndim - 2)];
  source.columns = key.mode == MLXSHIM_QUANT_NONE ? type.last() : type.last() * 32 / key.bits;
  source.members = type.ndim == 3 ? type.dims[0] : 1;
  source.mode = key.mode;
  source.bits = key.bits;
  source.group = key.group;
  source.weight = raw(key.weight).bytes.data();
  source.weight_dtype = raw(key.weight).dtype;
  if (key.scales >= 0) {
    source.scales = raw(key.scales).bytes.data();
    source.scale_dtype = raw(key.scales).dtype;
  }
  if (key.biases >= 0) source.biases = raw(key.biases).bytes.data();
  return pack(level_, source, [this](int64_t n, const auto& f) { parallel_for(threads_, n, f); });
}

const Matrix& NativeWeights::matrix(const MatrixKey& key) {
  if (auto it = packed_.find(key); it != packed_.end()) return *it->second.matrix;
  auto made = pack_of(key);
  Charge charge(meter_, int64_t(made->bytes()));
  const Matrix* matrix = packed_.emplace(key, Packed{std::move(made), std::move(charge)}).first->second.matrix.get();
  for (int64_t index : {key.weight, key.scales, key.biases})
    if (index >= 0) kept_[size_t(index)].bytes = Buffer();
  if (key.mode == MLXSHIM_QUANT_NONE) kept_[size_t(key.weight)].packed = matrix;
  return *matrix;
}

const float* NativeWeights::floats(int64_t index) {
  Kept& kept = kept_[size_t(index)];
  if (kept.bytes && kept.dtype == MLXSHIM_DTYPE_F32) return reinterpret_cast<const float*>(kept.bytes.data());
  if (!kept.widened) {
    const int64_t n = types()[size_t(index)].elements();
    Buffer wide(meter_, size_t(n) * sizeof(float));
    auto* to = reinterpret_cast<float*>(wide.data());
    if (kept.bytes) {
      convert_floats(kept.bytes.data(), kept.dtype, to, MLXSHIM_DTYPE_F32, size_t(n));
    } else if (kept.packed) {
      for (int64_t r = 0; r < kept.packed->rows * kept.packed->members; r++, to += kept.packed->columns)
        kept.packed->row(r, to);
    } else {
      raw(index);  // says why not
    }
    kept.widened = std::move(wide);
  }
  return reinterpret_cast<const float*>(kept.widened.data());
}

const void* NativeWeights::elements(int64_t index) const { return raw(index).bytes.data(); }

}  // namespace mlxcel::native
