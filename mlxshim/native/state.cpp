#include "state.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

namespace mlxcel::native {

std::shared_ptr<char> PagePool::take(size_t bytes) {
  const size_t size = (bytes + Buffer::kLine - 1) / Buffer::kLine * Buffer::kLine;
  auto& blocks = blocks_[size];
  auto block = std::find_if(blocks.begin(), blocks.end(), [](const Block& b) { return !b.unused.empty(); });
  if (block == blocks.end()) {
    const size_t pages = std::max<size_t>(1, Buffer::kLargePage / size);
    blocks.push_back({Buffer(meter_, std::max(pages * size, Buffer::kLargePage)), {}, pages});
    block = std::prev(blocks.end());
    for (size_t i = pages; i-- > 0;) block->unused.push_back(block->memory.data() + i * size);
  }
  char* page = block->unused.back();
  block->unused.pop_back();
  return {page, [&blocks, block](char* memory) {
            block->unused.push_back(memory);
            if (block->unused.size() == block->pages) blocks.erase(block);
          }};
}

Page::Page(const StateShape::Layer& layer, PagePool& pool)
    : key_floats(layer.kv_heads * layer.key_dim * kPageTokens),
      bytes(size_t(key_floats + layer.kv_heads * layer.value_dim * kPageTokens) * sizeof(float)),
      memory(pool.take(bytes)) {
  // Kernels also read keys of a page that are not written yet.
  std::memset(memory.get(), 0, bytes);
}

Page::Page(const Page& other, PagePool& pool)
    : key_floats(other.key_floats), bytes(other.bytes), memory(pool.take(bytes)) {
  std::memcpy(memory.get(), other.memory.get(), bytes);
}

NativeState::NativeState(StateShape given, std::shared_ptr<Meter> meter)
    : State(std::move(given)),
      last_tokens(size_t(shape.max_sequences)),
      pool_(std::make_unique<PagePool>(std::move(meter))),
      pages_(size_t(shape.max_sequences) * shape.layers.size()) {}

int64_t NativeState::bytes() const {
  int64_t sum = 0;
  std::set<const Page*> counted;  // shared ones once
  for (const Pages& pages : pages_)
    for (const auto& page : pages)
      if (counted.insert(page.get()).second) sum += int64_t(page->bytes);
  return sum;
}

void NativeState::reset(int64_t slot) {
  for (size_t layer = 0; layer < shape.layers.size(); layer++) pages(slot, int64_t(layer)) = Pages();
}

void NativeState::copy(int64_t from, int64_t to, int64_t tokens) {
  const int64_t count = (tokens + kPageTokens - 1) / kPageTokens;
  for (int64_t layer = 0; layer < int64_t(shape.layers.size()); layer++) {
    const Pages& source = pages(from, layer);
    pages(to, layer) = Pages(source.begin(), source.begin() + count);
  }
}

void NativeState::open(int64_t slot, int64_t layer, int64_t start, int64_t end) {
  Pages& all = pages(slot, layer);
  const int64_t first = start / kPageTokens, count = (end + kPageTokens - 1) / kPageTokens;
  for (int64_t i = first; i < std::min(count, int64_t(all.size())); i++) {
    auto& page = all[size_t(i)];
    if (page.use_count() == 1) continue;
    const bool keeps = i == first && start % kPageTokens != 0;  // some tokens before those that are written
    page = keeps ? std::make_shared<Page>(*page, *pool_) : std::make_shared<Page>(shape.layers[size_t(layer)], *pool_);
  }
  while (int64_t(all.size()) < count) all.push_back(std::make_shared<Page>(shape.layers[size_t(layer)], *pool_));
}

}  // namespace mlxcel::native
