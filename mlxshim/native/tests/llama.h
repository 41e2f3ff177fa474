// A llama-shaped model with random weights of any size, for tests and benchmarks of whole steps through the ABI.
#pragma once

#include <algorithm>

#include "abi.h"

namespace test {

struct Shape {
  int64_t layers, hidden, heads, kv_heads, dim, inner, vocabulary;
  int64_t window = 0;   // of every second layer
  int64_t experts = 0;  // in every second layer
};

// A session with so many threads (0: the library's choice).
struct Threaded : Session {
  explicit Threaded(int64_t threads) {
    OK(mlxshim_context_destroy(context));
    auto params = test_device();
    params.threads = threads;
    OK(mlxshim_context_create(&params, &context));
    OK(mlxshim_weights_create(context, &weights));
  }
};

// Affine weights, 4 bit and an 8 bit head, in groups of 32 with f16 scales.
class Llama {
 public:
  Llama(const Shape& shape, int64_t threads) : session(threads), s_(shape) {
    for (int64_t l = 0; l < s_.layers; l++) {
      Layer layer;
      layer.qkv = matrix({(s_.heads + 2 * s_.kv_heads) * s_.dim}, s_.hidden, 4);
      layer.out = matrix({s_.hidden}, s_.heads * s_.dim, 4);
      std::vector<int64_t> up{2 * s_.inner}, down{s_.hidden};
      if (sparse(l)) {
        up = {s_.experts, s_.inner}, down = {s_.experts, s_.hidden};
        layer.gate = matrix({s_.experts}, s_.hidden, 8);
      }
      layer.up = matrix(up, s_.hidden, 4);
      layer.down = matrix(down, s_.inner, 4);
      std::vector<float> norm(size_t(s_.hidden));
      for (float& x : norm) x = 1 + 0.1f * random_.normal();
      layer.norm = session.add(F32, {s_.hidden}, norm);
      layers_.push_back(layer);
    }
    head_ = matrix({s_.vocabulary}, s_.hidden, 8);
  }

  std::vector<mlxshim_layer> state_layers() const {
    std::vector<mlxshim_layer> all;
    for (int64_t l = 0; l < s_.layers; l++) all.push_back(layer(s_.kv_heads, s_.dim, s_.dim, l % 2 ? s_.window : 0));
    return all;
  }

  // Inputs: ids, positions, slots, offsets, contexts, rows. Output: the logits of the rows, or their best tokens.
  Builder program(int64_t tokens, int64_t rows, int64_t sequences, bool best) {
    Builder b;
    b.max_tokens = tokens, b.max_rows = rows, b.max_sequences = sequences;
    auto ids = b.input({I32, TOKENS, {tokens}}), positions = b.input({I32, TOKENS, {tokens}}),
         slots = b.input({I32, SEQUENCES, {sequences}}), offsets = b.input({I32, OFFSETS, {sequences + 1}}),
         contexts = b.input({I32, SEQUENCES, {sequences}}), which = b.input({I32, ROWS, {rows}});
    auto rows_of = [&](std::vector<int64_t> dims) {
      dims.insert(dims.begin(), tokens);
      return Type{F32, TOKENS, dims};
    };
    auto with = [&](std::vector<int64_t> in, const Matrix& m) {
      for (int64_t index : m.indices) in.push_back(b.weight(index));
      return in;
    };
    auto linear = [&](int64_t x, const Matrix& m, int64_t n) {
      return b.op(MLXSHIM_OP_LINEAR, with({x}, m), {MLXSHIM_QUANT_AFFINE, m.bits, 32}, {rows_of({n})});
    };
    auto experts = [&](int64_t x, int64_t chosen, const Matrix& m, int64_t n) {
      return b.op(MLXSHIM_OP_EXPERT_LINEAR, with({x, chosen}, m), {MLXSHIM_QUANT_AFFINE, m.bits, 32},
                  {rows_of({kUsed, n})});
    };
    auto norm = [&](int64_t x, int64_t w) {
      return b.op(MLXSHIM_OP_RMS_NORM, {x, b.weight(w)}, {bits(1e-5)}, {rows_of({s_.hidden})});
    };
    auto slice = [&](int64_t x, int64_t start, int64_t n) {
      return b.op(MLXSHIM_OP_SLICE, {x}, {start, n}, {rows_of({n})});
    };
    auto heads = [&](int64_t x, int64_t start, int64_t n) {
      return b.op(MLXSHIM_OP_RESHAPE, {slice(x, start * s_.dim, n * s_.dim)}, {}, {rows_of({n, s_.dim})});
    };
    auto rope = [&](int64_t x, int64_t n) {
      return b.op(MLXSHIM_OP_ROPE, {x, positions}, {s_.dim, 0, bits(1e5), bits(1), bits(1)}, {rows_of({n, s_.dim})});
    };
    auto x = b.op(MLXSHIM_OP_EMBED, with({ids}, head_), {MLXSHIM_QUANT_AFFINE, head_.bits, 32}, {rows_of({s_.hidden})});
    for (int64_t l = 0; l < s_.layers; l++) {
      const Layer& w = layers_[size_t(l)];
      auto qkv = linear(norm(x, w.norm), w.qkv, (s_.heads + 2 * s_.kv_heads) * s_.dim);
      auto q = rope(heads(qkv, 0, s_.heads), s_.heads), k = rope(heads(qkv, s_.heads, s_.kv_heads), s_.kv_heads),
           v = heads(qkv, s_.heads + s_.kv_heads, s_.kv_heads);
      b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {l}, {});
      auto y = b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {l, bits(1 / std::sqrt(double(s_.dim)))},
                    {rows_of({s_.heads, s_.dim})});
      y = b.op(MLXSHIM_OP_RESHAPE, {y}, {}, {rows_of({s_.heads * s_.dim})});
      x = b.op(MLXSHIM_OP_ADD, {x, linear(y, w.out, s_.hidden)}, {}, {rows_of({s_.hidden})});
      auto h = norm(x, w.norm);
      if (sparse(l)) {
        auto chosen = b.op(MLXSHIM_OP_ROUTE, {linear(h, w.gate, s_.experts)}, {kUsed, 1},
                           {{I32, TOKENS, {tokens, kUsed}}, rows_of({kUsed})});
        auto up = b.op(MLXSHIM_OP_SILU, {experts(h, chosen, w.up, s_.inner)}, {}, {rows_of({kUsed, s_.inner})});
        h = b.op(MLXSHIM_OP_COMBINE, {experts(up, chosen, w.down, s_.hidden), chosen + 1}, {}, {rows_of({s_.hidden})});
      } else {
        auto both = linear(h, w.up, 2 * s_.inner);
        h = b.op(MLXSHIM_OP_SWIGLU, {slice(both, 0, s_.inner), slice(both, s_.inner, s_.inner)}, {},
                 {rows_of({s_.inner})});
        h = linear(h, w.down, s_.hidden);
      }
      x = b.op(MLXSHIM_OP_ADD, {x, h}, {}, {rows_of({s_.hidden})});
    }
    x = b.op(MLXSHIM_OP_GATHER_ROWS, {x, which}, {}, {{F32, ROWS, {rows, s_.hidden}}});
    auto logits = b.op(MLXSHIM_OP_LINEAR, with({x}, head_), {MLXSHIM_QUANT_AFFINE, head_.bits, 32},
                       {{F32, ROWS, {rows, s_.vocabulary}}});
    b.output(best ? b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {rows}}}) : logits);
    return b;
  }

  Threaded session;

 private:
  static constexpr int64_t kUsed = 2;  // experts of a token

  struct Matrix {
    int64_t bits;
    std::vector<int64_t> indices;  // w, scales, biases
  };
  struct Layer {
    Matrix qkv, out, gate, up, down;
    int64_t norm;
  };

  bool sparse(int64_t l) const { return s_.experts > 0 && l % 2 == 1; }

  // Values spread evenly around 0 so that activations keep their size.
  Matrix matrix(std::vector<int64_t> rows, int64_t width, int64_t bits) {
    int64_t n = 1;
    for (int64_t d : rows) n *= d;
    std::vector<uint32_t> words(size_t(n * width * bits / 32));
    for (auto& w : words) w = random_.word();
    const float half_range = 1.7f / std::sqrt(float(width)), steps = float((1 << bits) - 1);
    std::vector<uint16_t> scales(size_t(n * width / 32)), biases(scales.size());
    for (size_t i = 0; i < scales.size(); i++) {
      const float range = half_range * (1 + 0.1f * float(random_.below(5)));
      scales[i] = half(2 * range / steps);
      biases[i] = half(-range);
    }
    auto packed = rows, groups = rows;
    packed.push_back(width * bits / 32);
    groups.push_back(width / 32);
    return {bits,
            {session.add(U32, packed, words), session.add(MLXSHIM_DTYPE_F16, groups, scales),
             session.add(MLXSHIM_DTYPE_F16, groups, biases)}};
  }

  const Shape s_;
  Random random_{1};
  std::vector<Layer> layers_;
  Matrix head_;
};

// The inputs of a run.
struct Batch {
  std::vector<int32_t> ids, positions, slots, offsets{0}, contexts, rows;

  // The tokens of a sequence from position `at` on; the last `logits` of them get logits.
  void add(int32_t slot, int64_t at, const std::vector<int32_t>& tokens, int64_t logits) {
    for (size_t i = 0; i < tokens.size(); i++) {
      ids.push_back(tokens[i]);
      positions.push_back(int32_t(at) + int32_t(i));
      if (int64_t(tokens.size() - i) <= logits) rows.push_back(int32_t(ids.size()) - 1);
    }
    slots.push_back(slot);
    offsets.push_back(int32_t(ids.size()));
    contexts.push_back(int32_t(at + int64_t(tokens.size())));
  }
  template <class T>
  std::vector<T> run(int64_t program, int64_t width) const {
    return test::run<T>(program, {int64_t(ids.size()), int64_t(rows.size()), int64_t(slots.size())},
                        {ids.data(), positions.data(), slots.data(), offsets.data(), contexts.data(), rows.data()},
                        int64_t(rows.size()) * width);
  }
};

}  // namespace test
