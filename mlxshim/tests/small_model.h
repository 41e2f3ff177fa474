// A tiny model with every op in one program: for malformed variants of it, for the fuzzer's corpus and for examples.
#pragma once

#include "quantize.h"

namespace test {

struct SmallModel {
  static constexpr int64_t kTokens = 4, kRows = 2, kSequences = 2, kVocabulary = 40, kHidden = 64, kHeads = 4,
                           kKvHeads = 2, kDim = 16, kExperts = 4, kUsed = 2, kWindow = 3;
  Builder builder;
  size_t header_words = 0;  // magic, counts, inputs and weights

  // Adds the weights to the session; with none, only the words are of use.
  explicit SmallModel(Session* session) {
    Builder& b = builder;
    Random random(41);
    b.max_tokens = kTokens, b.max_rows = kRows, b.max_sequences = kSequences;
    const Type hidden{F32, TOKENS, {kTokens, kHidden}}, logit_rows{F32, ROWS, {kRows, kVocabulary}};
    auto ids = b.input({I32, TOKENS, {kTokens}}), id_slots = b.input({I32, TOKENS, {kTokens}}),
         positions = b.input({I32, TOKENS, {kTokens}}), slots = b.input({I32, SEQUENCES, {kSequences}}),
         offsets = b.input({I32, OFFSETS, {kSequences + 1}}), contexts = b.input({I32, SEQUENCES, {kSequences}}),
         rows = b.input({I32, ROWS, {kRows}}), row_slots = b.input({I32, ROWS, {kRows}}),
         history = b.input({I32, ROWS, {kRows, 3}}), penalties = b.input({F32, ROWS, {kRows, 3}}),
         bias_ids = b.input({I32, ROWS, {kRows, 2}}), bias_values = b.input({F32, ROWS, {kRows, 2}}),
         settings = b.input({F32, ROWS, {kRows, 5}});

    int64_t next = 0;
    auto floats = [&](std::vector<int64_t> dims) {
      int64_t n = 1;
      for (int64_t d : dims) n *= d;
      return b.weight(session ? session->add(F32, dims, random.normals(n, 0.2f)) : next++);
    };
    auto quantized = [&](std::vector<int64_t> lead, int64_t width) {
      int64_t n = 1;
      for (int64_t d : lead) n *= d;
      auto q = random_quantized(random, {MLXSHIM_QUANT_AFFINE, 4, 32}, n, width);
      auto packed = lead, groups = lead;
      packed.push_back(width / 8);
      groups.push_back(width / 32);
      std::vector<int64_t> all;
      all.push_back(b.weight(session ? session->add(U32, packed, q.words) : next++));
      all.push_back(b.weight(session ? session->add(F32, groups, q.scales) : next++));
      all.push_back(b.weight(session ? session->add(F32, groups, q.biases) : next++));
      return all;
    };
    const std::vector<int64_t> affine{MLXSHIM_QUANT_AFFINE, 4, 32}, none{0, 0, 0};
    auto linear = [&](int64_t x, int64_t n, int64_t width) {
      std::vector<int64_t> in{x};
      for (int64_t w : quantized({n}, width)) in.push_back(w);
      return b.op(MLXSHIM_OP_LINEAR, in, affine, {{F32, TOKENS, {kTokens, n}}});
    };

    auto loaded = b.op(MLXSHIM_OP_LOAD_TOKENS, {ids, id_slots}, {}, {{I32, TOKENS, {kTokens}}});
    auto table = quantized({kVocabulary}, kHidden);
    auto x = b.op(MLXSHIM_OP_EMBED, {loaded, table[0], table[1], table[2]}, affine, {hidden});
    for (int64_t layer = 0; layer < 2; layer++) {
      auto h = b.op(MLXSHIM_OP_RMS_NORM, {x, floats({kHidden})}, {bits(1e-5)}, {hidden});
      auto qkv = linear(h, (kHeads + 2 * kKvHeads) * kDim, kHidden);
      auto part = [&](int64_t start, int64_t heads) {
        auto s = b.op(MLXSHIM_OP_SLICE, {qkv}, {start * kDim, heads * kDim}, {{F32, TOKENS, {kTokens, heads * kDim}}});
        return b.op(MLXSHIM_OP_RESHAPE, {s}, {}, {{F32, TOKENS, {kTokens, heads, kDim}}});
      };
      auto rotate = [&](int64_t v, int64_t heads) {
        return b.op(MLXSHIM_OP_ROPE, {v, positions}, {kDim, layer, bits(10000), bits(1), bits(layer ? 1.1 : 1)},
                    {{F32, TOKENS, {kTokens, heads, kDim}}});
      };
      auto q = rotate(part(0, kHeads), kHeads), k = rotate(part(kHeads, kKvHeads), kKvHeads),
           v = part(kHeads + kKvHeads, kKvHeads);
      b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {layer}, {});
      auto y = b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {layer, bits(0.25)},
                    {{F32, TOKENS, {kTokens, kHeads, kDim}}});
      y = b.op(MLXSHIM_OP_RESHAPE, {y}, {}, {hidden});
      x = b.op(MLXSHIM_OP_ADD, {x, linear(y, kHidden, kHeads * kDim)}, {}, {hidden});
      h = b.op(MLXSHIM_OP_RMS_NORM, {x, floats({kHidden})}, {bits(1e-5)}, {hidden});
      if (layer == 0) {
        auto gate = linear(h, 96, kHidden), up = linear(h, 96, kHidden);
        h = b.op(MLXSHIM_OP_SWIGLU, {gate, up}, {}, {{F32, TOKENS, {kTokens, 96}}});
        h = linear(h, kHidden, 96);
      } else {
        auto scores = b.op(MLXSHIM_OP_LINEAR, {h, floats({kExperts, kHidden}), -1, -1, floats({kExperts})}, none,
                           {{F32, TOKENS, {kTokens, kExperts}}});
        auto chosen = b.op(MLXSHIM_OP_ROUTE, {scores}, {kUsed, 1},
                           {{I32, TOKENS, {kTokens, kUsed}}, {F32, TOKENS, {kTokens, kUsed}}});
        auto up = quantized({kExperts, 32}, kHidden);
        auto wide = b.op(MLXSHIM_OP_EXPERT_LINEAR, {h, chosen, up[0], up[1], up[2]}, affine,
                         {{F32, TOKENS, {kTokens, kUsed, 32}}});
        wide = b.op(MLXSHIM_OP_SILU, {wide}, {}, {{F32, TOKENS, {kTokens, kUsed, 32}}});
        wide = b.op(MLXSHIM_OP_MULTIPLY, {wide, wide}, {}, {{F32, TOKENS, {kTokens, kUsed, 32}}});
        auto down = b.op(MLXSHIM_OP_EXPERT_LINEAR, {wide, chosen, floats({kExperts, kHidden, 32})}, none,
                         {{F32, TOKENS, {kTokens, kUsed, kHidden}}});
        h = b.op(MLXSHIM_OP_COMBINE, {down, chosen + 1}, {}, {hidden});
      }
      x = b.op(MLXSHIM_OP_ADD, {x, h}, {}, {hidden});
    }
    auto last = b.op(MLXSHIM_OP_GATHER_ROWS, {x, rows}, {}, {{F32, ROWS, {kRows, kHidden}}});
    auto logits = b.op(MLXSHIM_OP_LINEAR, {last, table[0], table[1], table[2]}, affine, {logit_rows});
    logits = b.op(MLXSHIM_OP_CAST, {logits}, {}, {logit_rows});
    logits = b.op(MLXSHIM_OP_PENALIZE, {logits, history, penalties}, {}, {logit_rows});
    logits = b.op(MLXSHIM_OP_BIAS, {logits, bias_ids, bias_values}, {}, {logit_rows});
    auto best = b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {kRows}}});
    auto token = b.op(MLXSHIM_OP_SAMPLE, {logits, settings}, {}, {{I32, ROWS, {kRows}}});
    b.op(MLXSHIM_OP_STORE_TOKENS, {token, row_slots}, {}, {});
    b.output(token);
    b.output(best);
    b.output(logits);
  }

  static std::vector<mlxshim_layer> layers() {
    return {layer(kKvHeads, kDim, kDim), layer(kKvHeads, kDim, kDim, kWindow)};
  }

  // The host arrays of a run of one token for slot 0, at position `at`.
  struct OneToken {
    std::vector<int32_t> ids, id_slots{0, 0}, positions, slots{0, 1}, offsets{0, 1, 2}, contexts, rows{0, 0},
        row_slots{0, 1}, history{-1, 3, 3, 1, 1, 1}, bias_ids{5, -1, 0, 0};
    std::vector<float> penalties{1.1f, 0.1f, 0.2f, 1, 0, 0}, bias_values{0.5f, 0, 0, 0},
        settings{0.8f, 10, 0.9f, 0.05f, 0.4f, 0, 0, 1, 0, 0};

    explicit OneToken(int32_t id, int32_t at) : ids{id, 0}, positions{at, 0}, contexts{at + 1, 1} {}
    std::vector<const void*> inputs() const {
      return {ids.data(),      id_slots.data(),    positions.data(), slots.data(),   offsets.data(),
              contexts.data(), rows.data(),        row_slots.data(), history.data(), penalties.data(),
              bias_ids.data(), bias_values.data(), settings.data()};
    }
  };
};

}  // namespace test
