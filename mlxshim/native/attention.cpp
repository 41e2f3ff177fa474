// Attention over the pages of the state.
//
// The order of all sums is fixed by the positions of keys: scores and weights are made page by page (64 keys at absolute
// positions), pages are summed up within spans of 256 keys, and spans are merged from the first to the last. So a query's
// result does not depend on what it is computed together with, nor on who computes which span.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stages.h"
#include "status.h"

namespace mlxcel::native {

static_assert(kPageTokens == kBlockKeys);

namespace {

constexpr int64_t kSpanPages = 4;
constexpr int64_t kTileRows = 24;  // queries, of all heads of a kv head, that go over the keys together
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Some tokens of a sequence and the heads that share a kv head.
struct Tile {
  int64_t slot, first_token, tokens, first_position, kv_head;
};

class AttentionStage : public Stage {
 public:
  AttentionStage(Attention attention, const StateShape::Layer& layer)
      : a_(attention),
        layer_(layer),
        group_(a_.heads / layer.kv_heads),
        tile_tokens_(std::max<int64_t>(1, kTileRows / group_)),
        rows_(tile_tokens_ * group_) {}

  size_t scratch(int) const override { return size_t(rows_) * (sizeof(float*) + sizeof(float) * size_t(5 + kBlockKeys + 2 * layer_.value_dim)) + 256; }

  void run(const Step& step) const override {
    // Tiles are dealt out by the keys that they look at.
    double all = 0;
    each_tile(step, [&](const Tile& tile) { all += cost(tile); });
    double passed = 0;
    each_tile(step, [&](const Tile& tile) {
      const double mine = cost(tile);
      if (int((passed + mine / 2) / all * step.threads()) == step.thread) attend(step, tile);
      passed += mine;
    });
  }

  std::string describe() const override {
    return text("attend layer ", a_.layer, " [", a_.heads, "/", layer_.kv_heads, ", ", layer_.key_dim, "]",
                layer_.window ? text(" window ", layer_.window) : "");
  }

 private:
  // What has been summed up of some keys, by row.
  struct Sums {
    float *largest, *total, *values;
  };
  struct Work {
    const float** queries;
    float *scores, *factors;
    Sums span, all;
  };

  template <class Body>
  void each_tile(const Step& step, Body body) const {
    for (int64_t s = 0; s < step.run.counts.sequences; s++) {
      const int64_t first = step.offsets()[s], end = step.offsets()[s + 1], start = step.contexts()[s] - (end - first);
      for (int64_t t = first; t < end; t += tile_tokens_)
        for (int64_t h = 0; h < layer_.kv_heads; h++)
          body(Tile{step.slots()[s], t, std::min(tile_tokens_, end - t), start + t - first, h});
    }
  }

  int64_t first_key(int64_t position) const {
    return layer_.window > 0 ? std::max<int64_t>(0, position - layer_.window + 1) : 0;
  }

  double cost(const Tile& tile) const {
    const int64_t last = tile.first_position + tile.tokens - 1;
    return double(tile.tokens) * double(last - first_key(last) + kPageTokens);
  }

  Work divide(char* scratch) const {
    Work w;
    w.queries = reinterpret_cast<const float**>(scratch);
    float* at = reinterpret_cast<float*>(w.queries + rows_);
    auto take = [&](int64_t n) { return std::exchange(at, at + n); };
    w.scores = take(rows_ * kBlockKeys);
    w.factors = take(rows_);
    for (Sums* sums : {&w.span, &w.all}) *sums = {take(rows_), take(rows_), take(rows_ * layer_.value_dim)};
    return w;
  }

  void attend(const Step& step, const Tile& tile) const {
    const Work w = divide(step.scratch);
    const int64_t rows = tile.tokens * group_, dim = layer_.value_dim;
    for (int64_t r = 0; r < rows; r++)
      w.queries[r] = step.row(a_.q, tile.first_token + r / group_) + (tile.kv_head * group_ + r % group_) * layer_.key_dim;
    const int64_t last = tile.first_position + tile.tokens - 1;
    const int64_t first_span = first_key(tile.first_position) / kPageTokens / kSpanPages, last_span = last / kPageTokens / kSpanPages;
    clear(w.all, rows);
    for (int64_t span = first_span; span <= last_span; span++) {
      clear(w.span, rows);
      for (int64_t page = span * kSpanPages; page < (span + 1) * kSpanPages && page * kPageTokens <= last; page++)
        add_page(step, tile, page, w);
      merge(step, w.span, w.all, rows);
    }
    for (int64_t r = 0; r < rows; r++) {
      float* y = step.row(a_.out, tile.first_token + r / group_) + (tile.kv_head * group_ + r % group_) * dim;
      const float *o = w.all.values + r * dim, total = w.all.total[r];
      for (int64_t i = 0; i < dim; i++) y[i] = o[i] / total;
    }
  }

  void clear(const Sums& sums, int64_t rows) const {
    std::fill_n(sums.largest, rows, kNothing);
    std::fill_n(sums.total, rows, 0.f);
    std::fill_n(sums.values, rows * layer_.value_dim, 0.f);
  }

  // Adds a page to the span's sums: at once where all of it is visible to all rows, else token by token, so that nothing
  // that a token must not see, be it NaN, touches its sums.
  void add_page(const Step& step, const Tile& tile, int64_t number, const Work& w) const {
    const int64_t begin = number * kPageTokens, end = begin + kPageTokens, last = tile.first_position + tile.tokens - 1;
    if (end - 1 <= tile.first_position && begin >= first_key(last))
      return add_keys(step, tile, number, w, 0, tile.tokens, 0, kPageTokens);
    for (int64_t t = 0; t < tile.tokens; t++) {
      const int64_t position = tile.first_position + t;
      const int64_t from = std::max(first_key(position), begin) - begin, to = std::min(position + 1, end) - begin;
      if (from < to) add_keys(step, tile, number, w, t, t + 1, from, to);
    }
  }

  // Adds keys [from, to) of a page to the sums of tokens [first, last).
  void add_keys(const Step& step, const Tile& tile, int64_t number, const Work& w, int64_t first, int64_t last, int64_t from,
                int64_t to) const {
    const Page& page = step.state->page(tile.slot, a_.layer, number);
    const float* keys = page.keys() + tile.kv_head * layer_.key_dim * kPageTokens;
    const float* values = page.values() + tile.kv_head * layer_.value_dim * kPageTokens;
    const int64_t row = first * group_, rows = (last - first) * group_;
    float* scores = w.scores + row * kBlockKeys;
    step.vectors.scores(w.queries + row, rows, keys, layer_.key_dim, a_.scale, from, to, scores);
    for (int64_t r = 0; r < rows; r++)
      w.factors[r] = step.vectors.soften(scores + r * kBlockKeys, from, to, &w.span.largest[row + r], &w.span.total[row + r]);
    step.vectors.weigh(scores, rows, values, layer_.value_dim, from, to, w.factors, w.span.values + row * layer_.value_dim,
                       layer_.value_dim);
  }

  // Adds the sums of a span to those of the spans before it.
  void merge(const Step& step, const Sums& span, const Sums& all, int64_t rows) const {
    const int64_t dim = layer_.value_dim;
    for (int64_t r = 0; r < rows; r++) {
      if (span.largest[r] == kNothing && span.total[r] == 0) continue;  // sees none of these keys
      const float largest = std::max(all.largest[r], span.largest[r]), shift = largest == kNothing ? 0 : largest;
      const float old_factor = std::exp(all.largest[r] - shift), new_factor = std::exp(span.largest[r] - shift);
      float *to = all.values + r * dim, *from = span.values + r * dim;
      all.largest[r] = largest;
      all.total[r] = all.total[r] * old_factor + span.total[r] * new_factor;
      for (int64_t i = 0; i < dim; i++) to[i] *= old_factor;
      step.vectors.add_scaled(from, new_factor, dim, to);
    }
  }

  const Attention a_;
  const StateShape::Layer layer_;
  const int64_t group_, tile_tokens_, rows_;
};

}  // namespace

StagePointer make_attention(Attention attention, const StateShape::Layer& layer) {
  return std::make_unique<AttentionStage>(attention, layer);
}

}  // namespace mlxcel::native
