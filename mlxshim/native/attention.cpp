// Attention over the pages of the state.
//
// The order of all sums is fixed by the positions of keys: scores and weights are made page by page (64 keys at
// absolute positions), pages are summed up within spans of 128 keys, and spans are merged from the first to the last.
// So a query's result does not depend on what it is computed together with, nor on who computes which span.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stages.h"
#include "status.h"
#include "threads.h"

namespace mlxcel::native {

namespace {

constexpr int64_t kSpanPages = 2;
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

  size_t scratch() const override {
    return size_t(rows_) * (sizeof(float*) + sizeof(float) * size_t(kBlockKeys + 1)) + 2 * sums_bytes(rows_);
  }

  size_t shared(const Program& program, const RunArguments& run, int threads) const override {
    const Batch batch(program, run);
    if (!splits(batch, threads)) return 0;
    size_t bytes = 0;
    each_tile(batch,
              [&](const Tile& tile) { bytes += size_t(spans(tile).count()) * sums_bytes(tile.tokens * group_); });
    return bytes;
  }

  int parts(const Program& program, const RunArguments& run, int threads) const override {
    const Batch batch(program, run);
    int64_t units = 0;
    const bool split = splits(batch, threads);
    each_tile(batch, [&](const Tile& tile) { units += split ? spans(tile).count() : 1; });
    return int(std::min<int64_t>({units, threads == 1 ? 1 : 4 * threads, kMostParts}));
  }

  // Tiles are dealt out by the keys that they look at; where there are few, their spans are.
  void run(const Step& step, Part part) const override {
    const Batch batch(step.program, step.run);
    const bool split = splits(batch, step.threads);
    double all = 0, passed = 0;
    each_tile(batch, [&](const Tile& tile) { all += cost(tile); });
    const Work work = divide(step.scratch);
    auto mine = [&](double cost) {
      passed += cost;
      return std::min(int((passed - cost / 2) / all * part.count), part.count - 1) == part.index;
    };
    char* sums = step.shared;
    each_tile(batch, [&](const Tile& tile) {
      if (!split) {
        if (mine(cost(tile))) attend(step, tile, work);
        return;
      }
      const Spans all_spans = spans(tile);
      const int64_t rows = tile.tokens * group_;
      for (int64_t span = all_spans.first; span <= all_spans.last; span++, sums += sums_bytes(rows))
        if (mine(cost(tile) / double(all_spans.count()))) sum_up(step, tile, span, work, sums_at(sums, rows));
    });
  }

  void finish(const Step& step) const override {
    const Batch batch(step.program, step.run);
    if (!splits(batch, step.threads)) return;
    const Work work = divide(step.scratch);
    char* sums = step.shared;
    each_tile(batch, [&](const Tile& tile) {
      const Spans all_spans = spans(tile);
      const int64_t rows = tile.tokens * group_;
      clear(work.all, rows);
      for (int64_t i = 0; i < all_spans.count(); i++, sums += sums_bytes(rows))
        merge(step, sums_at(sums, rows), work.all, rows);
      write(step, tile, work.all);
    });
  }

  std::string describe() const override {
    return text("attend layer ", a_.layer, " [", a_.heads, "/", layer_.kv_heads, ", ", layer_.key_dim, "]",
                layer_.window ? text(" window ", layer_.window) : "");
  }

 private:
  struct Batch {
    Batch(const Program& program, const RunArguments& run)
        : sequences(run.counts.sequences),
          slots(run.ints(program.slots)),
          offsets(run.ints(program.offsets)),
          contexts(run.ints(program.contexts)) {}
    int64_t sequences;
    const int32_t *slots, *offsets, *contexts;
  };
  struct Spans {
    int64_t first, last;
    int64_t count() const { return last - first + 1; }
  };
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
  void each_tile(const Batch& batch, Body body) const {
    for (int64_t s = 0; s < batch.sequences; s++) {
      const int64_t first = batch.offsets[s], end = batch.offsets[s + 1], start = batch.contexts[s] - (end - first);
      for (int64_t t = first; t < end; t += tile_tokens_)
        for (int64_t h = 0; h < layer_.kv_heads; h++)
          body(Tile{batch.slots[s], t, std::min(tile_tokens_, end - t), start + t - first, h});
    }
  }

  bool splits(const Batch& batch, int threads) const {
    if (threads == 1) return false;
    int64_t tiles = 0, most = 0;
    each_tile(batch, [&](const Tile& tile) {
      tiles++;
      most = std::max(most, spans(tile).count());
    });
    return most > 1 && tiles < 4 * threads;
  }

  Spans spans(const Tile& tile) const {
    constexpr int64_t kSpanTokens = kSpanPages * kPageTokens;
    return {first_key(tile.first_position) / kSpanTokens, (tile.first_position + tile.tokens - 1) / kSpanTokens};
  }

  int64_t first_key(int64_t position) const {
    return layer_.window > 0 ? std::max<int64_t>(0, position - layer_.window + 1) : 0;
  }

  double cost(const Tile& tile) const {
    const int64_t last = tile.first_position + tile.tokens - 1;
    return double(tile.tokens) * double(last - first_key(last) + kPageTokens);
  }

  size_t sums_bytes(int64_t rows) const {
    return (size_t(rows * (2 + layer_.value_dim)) * sizeof(float) + 63) / 64 * 64;  // threads share no line
  }
  Sums sums_at(char* memory, int64_t rows) const {
    auto* at = reinterpret_cast<float*>(memory);
    return {at, at + rows, at + 2 * rows};
  }

  Work divide(char* scratch) const {
    Work w;
    w.queries = reinterpret_cast<const float**>(scratch + 2 * sums_bytes(rows_));
    w.scores = reinterpret_cast<float*>(w.queries + rows_);
    w.factors = w.scores + rows_ * kBlockKeys;
    w.span = sums_at(scratch, rows_);
    w.all = sums_at(scratch + sums_bytes(rows_), rows_);
    return w;
  }

  // All of a tile's attention.
  void attend(const Step& step, const Tile& tile, const Work& work) const {
    const int64_t rows = tile.tokens * group_;
    const Spans all_spans = spans(tile);
    clear(work.all, rows);
    for (int64_t span = all_spans.first; span <= all_spans.last; span++) {
      sum_up(step, tile, span, work, work.span);
      merge(step, work.span, work.all, rows);
    }
    write(step, tile, work.all);
  }

  // Sums a span of a tile's keys up.
  void sum_up(const Step& step, const Tile& tile, int64_t span, const Work& work, const Sums& sums) const {
    const int64_t rows = tile.tokens * group_, last = tile.first_position + tile.tokens - 1;
    for (int64_t r = 0; r < rows; r++)
      work.queries[r] =
          step.row(a_.q, tile.first_token + r / group_) + (tile.kv_head * group_ + r % group_) * layer_.key_dim;
    clear(sums, rows);
    for (int64_t page = span * kSpanPages; page < (span + 1) * kSpanPages && page * kPageTokens <= last; page++)
      add_page(step, tile, page, work, sums);
  }

  void write(const Step& step, const Tile& tile, const Sums& sums) const {
    const int64_t rows = tile.tokens * group_, dim = layer_.value_dim;
    for (int64_t r = 0; r < rows; r++) {
      float* y = step.row(a_.out, tile.first_token + r / group_) + (tile.kv_head * group_ + r % group_) * dim;
      for (int64_t i = 0; i < dim; i++) y[i] = sums.values[r * dim + i] / sums.total[r];
    }
  }

  static float power(float x) { return x == 0 ? 1 : std::exp(x); }

  void clear(const Sums& sums, int64_t rows) const {
    std::fill_n(sums.largest, rows, kNothing);
    std::fill_n(sums.total, rows, 0.f);
    std::fill_n(sums.values, rows * layer_.value_dim, 0.f);
  }

  // Adds a page to the span's sums: at once where all of it is visible to all rows, else token by token, so that
  // nothing that a token must not see, be it NaN, touches its sums.
  void add_page(const Step& step, const Tile& tile, int64_t number, const Work& w, const Sums& sums) const {
    const int64_t begin = number * kPageTokens, end = begin + kPageTokens, last = tile.first_position + tile.tokens - 1;
    if (end - 1 <= tile.first_position && begin >= first_key(last))
      return add_keys(step, tile, number, w, sums, 0, tile.tokens, 0, kPageTokens);
    for (int64_t t = 0; t < tile.tokens; t++) {
      const int64_t position = tile.first_position + t;
      const int64_t from = std::max(first_key(position), begin) - begin, to = std::min(position + 1, end) - begin;
      if (from < to) add_keys(step, tile, number, w, sums, t, t + 1, from, to);
    }
  }

  // Adds keys [from, to) of a page to the sums of tokens [first, last).
  void add_keys(const Step& step, const Tile& tile, int64_t number, const Work& w, const Sums& sums, int64_t first,
                int64_t last, int64_t from, int64_t to) const {
    const float *keys = keys_of(step, tile, number), *values = values_of(step, tile, number);
    const int64_t row = first * group_, rows = (last - first) * group_;
    float* scores = w.scores + row * kBlockKeys;
    // Values are fetched while scores are made, and the keys of the span's next page while values are summed up.
    Ahead next;
    if ((number + 1) % kSpanPages != 0 && (number + 1) * kPageTokens < tile.first_position + tile.tokens)
      next = {keys_of(step, tile, number + 1), layer_.key_dim * kPageTokens * int64_t(sizeof(float))};
    step.vectors.scores(w.queries + row, rows, keys, layer_.key_dim, a_.scale, from, to, scores,
                        {values + from * layer_.value_dim, (to - from) * layer_.value_dim * int64_t(sizeof(float))});
    for (int64_t r = 0; r < rows; r++)
      w.factors[r] =
          step.vectors.soften(scores + r * kBlockKeys, from, to, &sums.largest[row + r], &sums.total[row + r]);
    step.vectors.weigh(scores, rows, values, layer_.value_dim, from, to, w.factors,
                       sums.values + row * layer_.value_dim, layer_.value_dim, next);
  }

  const float* keys_of(const Step& step, const Tile& tile, int64_t number) const {
    return step.state->page(tile.slot, a_.layer, number).keys() + tile.kv_head * layer_.key_dim * kPageTokens;
  }
  const float* values_of(const Step& step, const Tile& tile, int64_t number) const {
    return step.state->page(tile.slot, a_.layer, number).values() + tile.kv_head * layer_.value_dim * kPageTokens;
  }

  // Adds the sums of a span to those of the spans before it.
  void merge(const Step& step, const Sums& span, const Sums& all, int64_t rows) const {
    const int64_t dim = layer_.value_dim;
    for (int64_t r = 0; r < rows; r++) {
      if (span.largest[r] == kNothing && span.total[r] == 0) continue;  // sees none of these keys
      const float largest = std::max(all.largest[r], span.largest[r]), shift = largest == kNothing ? 0 : largest;
      const float old_factor = power(all.largest[r] - shift), new_factor = power(span.largest[r] - shift);
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
