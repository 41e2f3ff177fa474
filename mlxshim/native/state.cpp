#include "state.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace mlxcel::native {

Page::Page(const StateShape::Layer& layer, const std::shared_ptr<Meter>& meter)
    : key_floats(layer.kv_heads * layer.key_dim * kPageTokens),
      memory(meter, size_t(key_floats + layer.kv_heads * layer.value_dim * kPageTokens) * sizeof(float)) {
  // Kernels also read the tokens of a page that are not written yet.
  std::memset(memory.data(), 0, memory.size());
}

Page::Page(const Page& other, const std::shared_ptr<Meter>& meter)
    : key_floats(other.key_floats), memory(meter, other.memory.size()) {
  std::memcpy(memory.data(), other.memory.data(), memory.size());
}

NativeState::NativeState(StateShape given, std::shared_ptr<Meter> meter)
    : State(std::move(given)),
      last_tokens(size_t(shape.max_sequences)),
      meter_(std::move(meter)),
      pages_(size_t(shape.max_sequences) * shape.layers.size()) {}

int64_t NativeState::bytes() const {
  int64_t sum = 0;
  std::set<const Page*> counted;  // shared ones once
  for (const Pages& pages : pages_)
    for (const auto& page : pages)
      if (counted.insert(page.get()).second) sum += int64_t(page->memory.size());
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
    page = keeps ? std::make_shared<Page>(*page, meter_) : std::make_shared<Page>(shape.layers[size_t(layer)], meter_);
  }
  while (int64_t(all.size()) < count)
    all.push_back(std::make_shared<Page>(shape.layers[size_t(layer)], meter_));
}

}  // namespace mlxcel::native
