#include "state.h"

#include <algorithm>

#include "cuda/gpu.h"
#include "dtype.h"

namespace mlxcel {

namespace {

constexpr int64_t kStep = 256;  // capacities are multiples of it

int64_t round_up(int64_t n) { return (n + kStep - 1) / kStep * kStep; }

}  // namespace

MlxState::MlxState(const MlxContext& context, StateShape given)
    : State(std::move(given)),
      last_tokens(mx::zeros({int32_t(shape.max_sequences)}, mx::int32, context.stream)),
      context_(context),
      caches_(size_t(shape.max_sequences) * shape.layers.size()) {
  mx::eval(last_tokens);
}

int64_t MlxState::bytes() const {
  int64_t sum = 0;
  for (size_t i = 0; i < caches_.size(); i++) {
    const auto& layer = shape.layers[i % shape.layers.size()];
    sum += caches_[i].capacity * layer.kv_heads * (layer.key_dim + layer.value_dim) * dtype_size(shape.dtype);
  }
  return sum;
}

void MlxState::reset(int64_t slot) {
  for (size_t layer = 0; layer < shape.layers.size(); layer++) cache(slot, int64_t(layer)) = Cache{};
}

Cache MlxState::grown(const Cache& cache, int64_t layer, int64_t keep, int64_t tokens, Growth& growth) const {
  const auto& facts = shape.layers[size_t(layer)];
  Cache result;
  result.capacity =
      std::max(round_up(tokens), std::min(round_up(cache.capacity + cache.capacity / 4), round_up(shape.max_tokens)));
  growth.bytes += result.capacity * facts.kv_heads * (facts.key_dim + facts.value_dim) * dtype_size(shape.dtype);
  context_.reserve(growth.bytes);
  const mx::Stream stream = context_.stream;
  auto resize = [&](const std::optional<mx::array>& old, int64_t dim) {
    auto zeros = [&](int64_t rows) {
      return mx::zeros({1, int32_t(facts.kv_heads), int32_t(rows), int32_t(dim)}, to_mlx(shape.dtype), stream);
    };
    if (keep == 0) return zeros(result.capacity);
    auto kept = mx::slice(*old, {0, 0, 0, 0}, {1, int32_t(facts.kv_heads), int32_t(keep), int32_t(dim)}, stream);
    return mx::concatenate({kept, zeros(result.capacity - keep)}, 2, stream);
  };
  result.keys = resize(cache.keys, facts.key_dim);
  result.values = resize(cache.values, facts.value_dim);
  growth.made.insert(growth.made.end(), {*result.keys, *result.values});
  return result;
}

void MlxState::enqueue(Growth& growth, int64_t least) const {
  if (growth.bytes < least || growth.made.empty()) return;
  context_.pace() ? context_.pace()->enqueue(std::move(growth.made)) : mx::async_eval(std::move(growth.made));
  growth = {};
}

void MlxState::make_room(int64_t slot, int64_t keep, int64_t tokens, const std::vector<int64_t>& layers) {
  Growth growth;
  for (int64_t layer : layers) {
    Cache& now = cache(slot, layer);
    if (now.capacity >= tokens) continue;
    now = grown(now, layer, keep, tokens, growth);
    enqueue(growth, kLeastPiece);
  }
  enqueue(growth, 0);
}

void MlxState::copy(int64_t from, int64_t to, int64_t tokens) {
  reset(to);
  if (tokens == 0) return;
  // A real copy, made now: the source will be written in place.
  Growth growth;
  std::vector<Cache> copies;
  for (size_t layer = 0; layer < shape.layers.size(); layer++) {
    const Cache& source = cache(from, int64_t(layer));
    Cache empty{source.keys, source.values, 0};  // takes only the room that it needs
    copies.push_back(grown(empty, int64_t(layer), tokens, tokens, growth));
    enqueue(growth, kLeastPiece);
  }
  enqueue(growth, 0);
  for (size_t layer = 0; layer < copies.size(); layer++) cache(to, int64_t(layer)) = std::move(copies[layer]);
}

}  // namespace mlxcel
