// Keys and values in pages of a fixed number of tokens, by slot and layer.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <vector>

#include "backend.h"
#include "cpu/vector.h"
#include "memory.h"

namespace mlxcel::native {

// Tokens of a page. Attention works page by page, so it is also the block in which scores are summed up.
constexpr int64_t kPageTokens = kBlockKeys;

// Keys of a page lie in lines of kLineKeys: [kv_heads][kPageTokens / kLineKeys][key_dim][kLineKeys], so that a register
// holds one dimension of many tokens, and a new token touches memory that lies together. Values are
// [kv_heads][kPageTokens][value_dim]. Both are f32, whatever type the state is asked for.

// Memory for pages: they are cut from large blocks, which the system can map with large pages, and used again.
class PagePool {
 public:
  explicit PagePool(std::shared_ptr<Meter> meter) : meter_(std::move(meter)) {}

  // Memory of so many bytes, not cleared. It goes back when the last owner lets go; a block without pages in use is
  // freed.
  std::shared_ptr<char> take(size_t bytes);

 private:
  struct Block {
    Buffer memory;
    std::vector<char*> unused;
    size_t pages;
  };

  const std::shared_ptr<Meter> meter_;
  std::map<size_t, std::list<Block>> blocks_;  // by the size of their pages
};

// One page of one layer.
struct Page {
  Page(const StateShape::Layer& layer, PagePool& pool);
  Page(const Page& other, PagePool& pool);

  float* keys() const { return reinterpret_cast<float*>(memory.get()); }
  float* values() const { return keys() + key_floats; }

  int64_t key_floats;
  size_t bytes;
  std::shared_ptr<char> memory;
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
  const Page& page(int64_t slot, int64_t layer, int64_t number) const { return *pages(slot, layer)[size_t(number)]; }

  std::vector<int32_t> last_tokens;  // by slot

 private:
  using Pages = std::vector<std::shared_ptr<Page>>;
  Pages& pages(int64_t slot, int64_t layer) { return pages_[size_t(slot) * shape.layers.size() + size_t(layer)]; }
  const Pages& pages(int64_t slot, int64_t layer) const {
    return pages_[size_t(slot) * shape.layers.size() + size_t(layer)];
  }

  const std::unique_ptr<PagePool> pool_;  // outlives the pages
  std::vector<Pages> pages_;
};

}  // namespace mlxcel::native
