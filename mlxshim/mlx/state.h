// Keys and values as MLX arrays, one pair a slot and layer, [1, heads, capacity, dim], written in place.
#pragma once

#include <optional>
#include <vector>

#include "context.h"

namespace mlxcel {

struct Cache {
  std::optional<mx::array> keys, values;  // none: nothing written yet
  int64_t capacity = 0;
};

class MlxState : public State {
 public:
  MlxState(const MlxContext& context, StateShape shape);

  int64_t bytes() const override;
  void reset(int64_t slot) override;
  void copy(int64_t from, int64_t to, int64_t tokens) override;

  // The cache of a slot and layer, as the runs so far leave it.
  Cache& cache(int64_t slot, int64_t layer) { return caches_[size_t(slot) * shape.layers.size() + size_t(layer)]; }
  // Makes room for `tokens` tokens in layers of a slot, which keep their first `keep`. Layers are enqueued one after the
  // other, so that little more than one of them is held twice. Throws MLXSHIM_ERR_MEMORY where there is no room; then, as
  // always, the layers hold what they held.
  void make_room(int64_t slot, int64_t keep, int64_t tokens, const std::vector<int64_t>& layers);

  mx::array last_tokens;  // i32 [max_sequences]

 private:
  // Caches that were not enqueued yet.
  struct Growth {
    std::vector<mx::array> made;
    int64_t bytes = 0;
  };
  // A cache with room for `tokens` tokens that holds the first `keep` of this one.
  Cache grown(const Cache& cache, int64_t layer, int64_t keep, int64_t tokens, Growth& growth) const;
  // Where it has so many bytes.
  void enqueue(Growth& growth, int64_t least) const;

  const MlxContext& context_;  // which outlives what is made from it
  std::vector<Cache> caches_;
};

}  // namespace mlxcel
