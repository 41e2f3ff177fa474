// Keys and values in pages of a fixed number of tokens, by slot and layer.
#pragma once

#include <memory>
#include <vector>

#include "backend.h"
#include "memory.h"

namespace mlxcel::native {

// Tokens of a page. Attention works page by page, so it is also the block in which scores are summed up.
constexpr int64_t kPageTokens = 64;

// One page of one layer, f32. Keys are [kv_heads][key_dim][kPageTokens], so that a vector holds one dimension of many
// tokens; values are [kv_heads][kPageTokens][value_dim].
struct Page {
  Page(const StateShape::Layer& layer, const std::shared_ptr<Meter>& meter);
  Page(const Page& other, const std::shared_ptr<Meter>& meter);

  float* keys() const { return reinterpret_cast<float*>(memory.data()); }
  float* values() const { return keys() + key_floats; }

  int64_t key_floats;
  Buffer memory;
};

class NativeState : public State {
 public:
  NativeState(StateShape shape, std::shared_ptr<Meter> meter);

  int64_t bytes() const override;
  void reset(int64_t slot) override;
  // Pages are shared between slots until one of them writes.
  void copy(int64_t from, int64_t to, int64_t tokens) override;

  // Makes room for the tokens [start, end) of a slot and layer, which are about to be written: the pages that hold them
  // are there and nobody else's. Pages past them, of a sequence that was longer, stay until the slot is reset.
  void open(int64_t slot, int64_t layer, int64_t start, int64_t end);
  const Page& page(int64_t slot, int64_t layer, int64_t number) const {
    return *pages(slot, layer)[size_t(number)];
  }

  std::vector<int32_t> last_tokens;  // by slot

 private:
  using Pages = std::vector<std::shared_ptr<Page>>;
  Pages& pages(int64_t slot, int64_t layer) { return pages_[size_t(slot) * shape.layers.size() + size_t(layer)]; }
  const Pages& pages(int64_t slot, int64_t layer) const {
    return pages_[size_t(slot) * shape.layers.size() + size_t(layer)];
  }

  const std::shared_ptr<Meter> meter_;
  std::vector<Pages> pages_;
};

}  // namespace mlxcel::native
