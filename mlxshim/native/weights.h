// Weights as they are stored, and the matrices that are packed of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend.h"
#include "cpu/matmul.h"
#include "memory.h"

namespace mlxcel::native {

// Weights keep the type of their file: kernels widen them while they compute. Those of one dimension (norms, biases)
// are small and kept as f32. A weight that a program multiplies with is packed, when that is asked for or the first such
// program is loaded, straight from its file if it can be: its bytes as they are stored are never all in memory then. All
// programs of the set share what is packed.
class NativeWeights : public Weights {
 public:
  NativeWeights(Level level, int threads, std::shared_ptr<Meter> meter)
      : level_(level), threads_(threads), meter_(std::move(meter)) {}

  // The packed matrix of its parts; a weight of three dimensions is a stack. It lives as long as the set. Throws
  // MLXSHIM_ERR_UNSUPPORTED where a part of it is packed in another way already.
  const Matrix& matrix(const MatrixParts& parts);
  void pack(const MatrixParts& parts) override { matrix(parts); }
  // A weight of floats as f32. It lives as long as the set.
  const float* floats(int64_t index);
  // The elements of a weight that is not of floats.
  const void* elements(int64_t index);

 protected:
  void load(const WeightFacts& facts, const WeightSource& source) override;

 private:
  struct Kept {
    int64_t dtype;                       // of the bytes
    std::optional<WeightSource> source;  // where the bytes are still to be read from
    Buffer bytes;                        // none, and no source: packed
    Buffer widened;
    const Matrix* packed = nullptr;  // what its values went into

    void release() {
      source.reset();
      bytes = Buffer();
    }
  };
  struct Packed {
    std::unique_ptr<Matrix> matrix;
    Charge charge;
  };

  const Kept& raw(int64_t index);
  std::unique_ptr<Matrix> pack_of(const MatrixParts& parts);
  Buffer read(const WeightSource& source, int64_t n, int64_t stored, int64_t dtype) const;

  const Level level_;
  const int threads_;  // that pack
  const std::shared_ptr<Meter> meter_;
  std::vector<Kept> kept_;
  std::map<MatrixParts, Packed> packed_;
};

}  // namespace mlxcel::native
