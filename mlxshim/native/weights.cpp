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
  const int64_t stored = facts.stored_dtype, dtype = kept_dtype(facts);
  Kept kept{dtype, {}, {}, {}, nullptr};
  if (dtype == stored && facts.type.ndim > 1 && !source.borrowed())
    kept.source = source;
  else
    kept.bytes = read(source, facts.type.elements(), stored, dtype);
  kept_.push_back(std::move(kept));
}

Buffer NativeWeights::read(const WeightSource& source, int64_t n, int64_t stored, int64_t dtype) const {
  Buffer all(meter_, size_t(n * dtype_size(dtype)));
  constexpr int64_t kPiece = int64_t(1) << 16;  // elements
  // On all threads: most of the time goes into memory that is touched for the first time.
  parallel_for(threads_, (n + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end) {
    std::vector<char> piece;
    for (int64_t i = begin * kPiece; i < std::min(n, end * kPiece); i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      char* to = all.data() + i * dtype_size(dtype);
      if (dtype == stored) {
        source.read(to, i * dtype_size(stored), m * dtype_size(stored));
      } else {
        piece.resize(size_t(m * dtype_size(stored)));
        source.read(piece.data(), i * dtype_size(stored), m * dtype_size(stored));
        convert_floats(piece.data(), stored, to, dtype, size_t(m));
      }
    }
  });
  return all;
}

const NativeWeights::Kept& NativeWeights::raw(int64_t index) {
  Kept& kept = kept_[size_t(index)];
  if (kept.source) {
    kept.bytes = read(*kept.source, types()[size_t(index)].elements(), kept.dtype, kept.dtype);
    kept.source.reset();
  }
  if (!kept.bytes)
    fail(MLXSHIM_ERR_UNSUPPORTED, "weight ", facts()[size_t(index)].name,
         " is packed as a matrix already and cannot be used in another way too");
  return kept;
}

std::unique_ptr<Matrix> NativeWeights::pack_of(const MatrixParts& parts) {
  const Type& type = types()[size_t(parts.weight)];
  MatrixSource source;
  source.rows = type.dims[size_t(type.ndim - 2)];
  source.columns = matrix_columns(parts.format, type);
  source.members = type.ndim == 3 ? type.dims[0] : 1;
  source.mode = parts.format.mode;
  source.bits = parts.format.bits;
  source.group = parts.format.group;
  source.weight_dtype = kept_[size_t(parts.weight)].dtype;
  if (parts.scales >= 0) source.scale_dtype = kept_[size_t(parts.scales)].dtype;
  source.read = [&](int64_t row, int64_t n, MatrixSource::Buffer& buffer) {
    auto rows = [&](int64_t index, int64_t bytes, std::vector<char>& to) -> const void* {
      if (index < 0) return nullptr;
      const Kept& kept = kept_[size_t(index)];
      if (!kept.source) return kept.bytes.data() + row * bytes;
      to.resize(size_t(n * bytes));
      kept.source->read(to.data(), row * bytes, n * bytes, buffer.file);
      return to.data();
    };
    return MatrixSource::Rows{rows(parts.weight, source.weight_bytes(), buffer.weight),
                              rows(parts.scales, source.scale_bytes(), buffer.scales),
                              rows(parts.biases, source.scale_bytes(), buffer.biases)};
  };
  for (int64_t index : {parts.weight, parts.scales, parts.biases})
    if (index >= 0 && !kept_[size_t(index)].source) raw(index);  // says where it is gone
  return native::pack(level_, source, [this](int64_t n, const auto& f) { parallel_for(threads_, n, f); });
}

const Matrix& NativeWeights::matrix(const MatrixParts& parts) {
  if (auto it = packed_.find(parts); it != packed_.end()) return *it->second.matrix;
  auto made = pack_of(parts);
  Charge charge(meter_, int64_t(made->bytes()));
  const Matrix* matrix = packed_.emplace(parts, Packed{std::move(made), std::move(charge)}).first->second.matrix.get();
  for (int64_t index : {parts.weight, parts.scales, parts.biases})
    if (index >= 0) kept_[size_t(index)].release();
  if (parts.format.mode == MLXSHIM_QUANT_NONE) kept_[size_t(parts.weight)].packed = matrix;
  return *matrix;
}

const float* NativeWeights::floats(int64_t index) {
  Kept& kept = kept_[size_t(index)];
  if (kept.source) raw(index);
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

const void* NativeWeights::elements(int64_t index) { return raw(index).bytes.data(); }

}  // namespace mlxcel::native
