// Weights as they are stored, and the matrices that are packed of them.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "backend.h"
#include "cpu/matmul.h"
#include "memory.h"

namespace mlxcel::native {

// Which weights a matrix is made of (-1: none), and how.
struct MatrixKey {
  int64_t weight, scales, biases;
  int64_t mode, bits, group;
  auto operator<=>(const MatrixKey&) const = default;
};

// Weights keep the type of their file: kernels widen them while they compute. Those of one dimension (norms, biases)
// are small and kept as f32. A weight that a program multiplies with is packed when the first such program is loaded,
// and its bytes are given back; all programs of the set share what is packed.
class NativeWeights : public Weights {
 public:
  NativeWeights(Level level, int threads, std::shared_ptr<Meter> meter)
      : level_(level), threads_(threads), meter_(std::move(meter)) {}

  // The packed matrix of a key; a weight of three dimensions is a stack. It lives as long as the set. Throws
  // MLXSHIM_ERR_UNSUPPORTED where a part of it is packed in another way already.
  const Matrix& matrix(const MatrixKey& key);
  // A weight of floats as f32. It lives as long as the set.
  const float* floats(int64_t index);
  // The elements of a weight that is not of floats.
  const void* elements(int64_t index) const;

 protected:
  void load(const WeightFacts& facts, const WeightSource& source) override;

 private:
  struct Kept {
    int64_t dtype;  // of the bytes
    Buffer bytes;   // none: packed
    Buffer widened;
    const Matrix* packed = nullptr;  // what its values went into
  };
  struct Packed {
    std::unique_ptr<Matrix> matrix;
    Charge charge;
  };

  const Kept& raw(int64_t index) const;
  std::unique_ptr<Matrix> pack_of(const MatrixKey& key) const;

  const Level level_;
  const int threads_;  // that pack
  const std::shared_ptr<Meter> meter_;
  std::vector<Kept> kept_;
  std::map<MatrixKey, Packed> packed_;
};

}  // namespace mlxcel::native
