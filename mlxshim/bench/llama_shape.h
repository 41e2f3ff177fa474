// The shape of SmolLM2-135M, with random weights: 4-bit layers and an 8-bit tied embedding, groups of 32, q/k/v and
// gate/up joined. The same bytes serve the loop over MLX's ops and the program.
#pragma once

#include <cstdint>
#include <vector>

#include "../tests/abi.h"

namespace bench {

constexpr int64_t kLayers = 30, kHidden = 576, kHeads = 9, kKvHeads = 3, kDim = 64, kFfn = 1536, kVocabulary = 49152,
                  kGroup = 32, kQkv = (kHeads + 2 * kKvHeads) * kDim;
constexpr double kEps = 1e-5, kBase = 100000, kScale = 0.125;

struct Matrix {
  int64_t rows, width, bits;
  std::vector<uint32_t> words;
  std::vector<float> scales, biases;

  Matrix(test::Random& random, int64_t rows_, int64_t width_, int64_t bits_) : rows(rows_), width(width_), bits(bits_) {
    words.resize(size_t(rows * width * bits / 32));
    for (auto& w : words) w = random.word();
    scales.resize(size_t(rows * width / kGroup));
    biases.resize(scales.size());
    const float step = 0.06f / float(1 << bits);
    for (size_t i = 0; i < scales.size(); i++) {
      scales[i] = step * (1 + 0.1f * float(i % 7));
      biases[i] = -scales[i] * float(1 << bits) / 2;
    }
  }
};

struct Layer {
  Matrix qkv, o, gate_up, down;
  explicit Layer(test::Random& r)
      : qkv(r, kQkv, kHidden, 4),
        o(r, kHidden, kHeads * kDim, 4),
        gate_up(r, 2 * kFfn, kHidden, 4),
        down(r, kHidden, kFfn, 4) {}
};

struct Model {
  test::Random random{7};
  Matrix embedding{random, kVocabulary, kHidden, 8};
  std::vector<Layer> layers;
  std::vector<float> norm = std::vector<float>(size_t(kHidden), 1.f);
  Model() {
    for (int64_t i = 0; i < kLayers; i++) layers.emplace_back(random);
  }
};

// The decode program of the model for up to `tokens` tokens in one sequence. Inputs: ids, id slots, positions, slots,
// offsets, contexts, rows, row slots. Output: the best token of each row, which is stored too.
inline test::Builder decode_program(test::Session& session, const Model& model, int64_t tokens) {
  using namespace test;
  Builder b;
  b.max_tokens = tokens;
  const Type hidden{F32, TOKENS, {tokens, kHidden}};
  auto ids = b.input({I32, TOKENS, {tokens}}), id_slots = b.input({I32, TOKENS, {tokens}}),
       positions = b.input({I32, TOKENS, {tokens}}), slots = b.input({I32, SEQUENCES, {1}}),
       offsets = b.input({I32, OFFSETS, {2}}), contexts = b.input({I32, SEQUENCES, {1}}),
       rows = b.input({I32, ROWS, {1}}), row_slots = b.input({I32, ROWS, {1}});
  auto add = [&](const Matrix& m) {
    return std::vector<int64_t>{b.weight(session.add(U32, {m.rows, m.width * m.bits / 32}, m.words)),
                                b.weight(session.add(F32, {m.rows, m.width / kGroup}, m.scales)),
                                b.weight(session.add(F32, {m.rows, m.width / kGroup}, m.biases))};
  };
  auto norm = b.weight(session.add(F32, {kHidden}, model.norm));
  auto table = add(model.embedding);
  auto linear = [&](int64_t x, const Matrix& m) {
    auto w = add(m);
    return b.op(MLXSHIM_OP_LINEAR, {x, w[0], w[1], w[2]}, {MLXSHIM_QUANT_AFFINE, m.bits, kGroup},
                {{F32, TOKENS, {tokens, m.rows}}});
  };
  auto slice = [&](int64_t x, int64_t start, int64_t size) {
    return b.op(MLXSHIM_OP_SLICE, {x}, {start, size}, {{F32, TOKENS, {tokens, size}}});
  };
  auto heads = [&](int64_t x, int64_t n) {
    return b.op(MLXSHIM_OP_RESHAPE, {x}, {}, {{F32, TOKENS, {tokens, n, kDim}}});
  };
  auto rope = [&](int64_t x, int64_t n) {
    return b.op(MLXSHIM_OP_ROPE, {x, positions}, {kDim, 0, bits(kBase), bits(1), bits(1)},
                {{F32, TOKENS, {tokens, n, kDim}}});
  };
  auto rms = [&](int64_t x, Type type) { return b.op(MLXSHIM_OP_RMS_NORM, {x, norm}, {bits(kEps)}, {type}); };

  auto loaded = b.op(MLXSHIM_OP_LOAD_TOKENS, {ids, id_slots}, {}, {{I32, TOKENS, {tokens}}});
  auto x = b.op(MLXSHIM_OP_EMBED, {loaded, table[0], table[1], table[2]}, {MLXSHIM_QUANT_AFFINE, 8, kGroup}, {hidden});
  for (int64_t l = 0; l < kLayers; l++) {
    const Layer& layer = model.layers[size_t(l)];
    auto qkv = linear(rms(x, hidden), layer.qkv);
    auto q = rope(heads(slice(qkv, 0, kHeads * kDim), kHeads), kHeads);
    auto k = rope(heads(slice(qkv, kHeads * kDim, kKvHeads * kDim), kKvHeads), kKvHeads);
    auto v = heads(slice(qkv, (kHeads + kKvHeads) * kDim, kKvHeads * kDim), kKvHeads);
    b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {l}, {});
    auto y = b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {l, bits(kScale)},
                  {{F32, TOKENS, {tokens, kHeads, kDim}}});
    y = b.op(MLXSHIM_OP_RESHAPE, {y}, {}, {{F32, TOKENS, {tokens, kHeads * kDim}}});
    x = b.op(MLXSHIM_OP_ADD, {x, linear(y, layer.o)}, {}, {hidden});
    auto wide = linear(rms(x, hidden), layer.gate_up);
    auto act =
        b.op(MLXSHIM_OP_SWIGLU, {slice(wide, 0, kFfn), slice(wide, kFfn, kFfn)}, {}, {{F32, TOKENS, {tokens, kFfn}}});
    x = b.op(MLXSHIM_OP_ADD, {x, linear(act, layer.down)}, {}, {hidden});
  }
  auto last = rms(b.op(MLXSHIM_OP_GATHER_ROWS, {x, rows}, {}, {{F32, ROWS, {1, kHidden}}}), {F32, ROWS, {1, kHidden}});
  auto logits = b.op(MLXSHIM_OP_LINEAR, {last, table[0], table[1], table[2]}, {MLXSHIM_QUANT_AFFINE, 8, kGroup},
                     {{F32, ROWS, {1, kVocabulary}}});
  auto best = b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {1}}});
  b.op(MLXSHIM_OP_STORE_TOKENS, {best, row_slots}, {}, {});
  b.output(best);
  return b;
}

}  // namespace bench
