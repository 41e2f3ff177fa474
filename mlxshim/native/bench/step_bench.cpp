// Times whole steps of a llama-shaped model with random weights: decode and prefill, through the ABI.
//
//   step_bench [tokens a step and sequence] [tokens before it] [steps] [sequences] [threads]
//
// The shape is SmolLM2-135M's: affine 4 bit layers and an 8 bit head, groups of 32, f16 scales.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "abi.h"

using namespace test;

namespace {

constexpr int64_t kLayers = 30, kHidden = 576, kHeads = 9, kKvHeads = 3, kDim = 64, kInner = 1536, kVocabulary = 49152;
constexpr int64_t F16 = MLXSHIM_DTYPE_F16;

struct Model {
  // A session with so many threads.
  struct Threaded : Session {
    explicit Threaded(int64_t threads) {
      OK(mlxshim_context_destroy(context));
      auto params = cpu();
      params.threads = threads;
      OK(mlxshim_context_create(&params, &context));
      OK(mlxshim_weights_create(context, &weights));
    }
  };
  Threaded session;
  Random random{1};
  std::vector<std::vector<int64_t>> weights;  // indices of w, scales, biases
  std::vector<int64_t> norms;

  int64_t add_raw(int64_t dtype, std::vector<int64_t> dims, const std::vector<uint16_t>& data) {
    return session.add(dtype, std::move(dims), data);
  }
  void add_matrix(int64_t n, int64_t k, int64_t width) {
    std::vector<uint32_t> words(size_t(n * k * width / 32));
    for (auto& w : words) w = random.word();
    // 2^-9 and -2^-9 * half the range, as halves, with some noise in the fraction.
    std::vector<uint16_t> scales(size_t(n * k / 32)), biases(scales.size());
    for (size_t i = 0; i < scales.size(); i++) {
      scales[i] = uint16_t((width == 8 ? 0x0800 : 0x1800) + (random.word() & 0xff));
      biases[i] = uint16_t(0xa400 + (random.word() & 0xff));
    }
    weights.push_back({session.add(U32, {n, k * width / 32}, words), add_raw(F16, {n, k / 32}, scales),
                       add_raw(F16, {n, k / 32}, biases)});
  }
  explicit Model(int64_t threads) : session(threads) {
    for (int64_t l = 0; l < kLayers; l++) {
      add_matrix((kHeads + 2 * kKvHeads) * kDim, kHidden, 4);
      add_matrix(kHidden, kHeads * kDim, 4);
      add_matrix(2 * kInner, kHidden, 4);
      add_matrix(kHidden, kInner, 4);
      norms.push_back(session.add(F32, {kHidden}, std::vector<float>(kHidden, 1.f)));
    }
    add_matrix(kVocabulary, kHidden, 8);
  }

  Builder program(int64_t tokens, int64_t rows, int64_t sequences) {
    Builder b;
    b.max_tokens = tokens, b.max_rows = rows, b.max_sequences = sequences;
    auto ids = b.input({I32, TOKENS, {tokens}}), positions = b.input({I32, TOKENS, {tokens}}),
         slots = b.input({I32, SEQUENCES, {sequences}}), offsets = b.input({I32, OFFSETS, {sequences + 1}}),
         contexts = b.input({I32, SEQUENCES, {sequences}}), which = b.input({I32, ROWS, {rows}});
    const Type hidden{F32, TOKENS, {tokens, kHidden}};
    auto in = [&](int64_t x, const std::vector<int64_t>& w) {
      return std::vector<int64_t>{x, b.weight(w[0]), b.weight(w[1]), b.weight(w[2])};
    };
    auto linear = [&](int64_t x, const std::vector<int64_t>& w, int64_t n) {
      return b.op(MLXSHIM_OP_LINEAR, in(x, w), {MLXSHIM_QUANT_AFFINE, 4, 32}, {{F32, TOKENS, {tokens, n}}});
    };
    auto norm = [&](int64_t x, size_t l) {
      return b.op(MLXSHIM_OP_RMS_NORM, {x, b.weight(norms[l])}, {bits(1e-5)}, {hidden});
    };
    auto slice = [&](int64_t x, int64_t start, int64_t n) {
      return b.op(MLXSHIM_OP_SLICE, {x}, {start, n}, {{F32, TOKENS, {tokens, n}}});
    };
    auto heads = [&](int64_t x, int64_t start, int64_t n) {
      return b.op(MLXSHIM_OP_RESHAPE, {slice(x, start * kDim, n * kDim)}, {}, {{F32, TOKENS, {tokens, n, kDim}}});
    };
    auto rope = [&](int64_t x, int64_t n) {
      return b.op(MLXSHIM_OP_ROPE, {x, positions}, {kDim, 0, bits(1e5), bits(1), bits(1)}, {{F32, TOKENS, {tokens, n, kDim}}});
    };
    auto x = b.op(MLXSHIM_OP_EMBED, in(ids, weights.back()), {MLXSHIM_QUANT_AFFINE, 8, 32}, {hidden});
    for (int64_t l = 0; l < kLayers; l++) {
      const auto* w = &weights[size_t(4 * l)];
      auto qkv = linear(norm(x, size_t(l)), w[0], (kHeads + 2 * kKvHeads) * kDim);
      auto q = rope(heads(qkv, 0, kHeads), kHeads), k = rope(heads(qkv, kHeads, kKvHeads), kKvHeads),
           v = heads(qkv, kHeads + kKvHeads, kKvHeads);
      b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {l}, {});
      auto y = b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {l, bits(0.125)}, {{F32, TOKENS, {tokens, kHeads, kDim}}});
      y = b.op(MLXSHIM_OP_RESHAPE, {y}, {}, {hidden});
      x = b.op(MLXSHIM_OP_ADD, {x, linear(y, w[1], kHidden)}, {}, {hidden});
      auto both = linear(norm(x, size_t(l)), w[2], 2 * kInner);
      auto h = b.op(MLXSHIM_OP_SWIGLU, {slice(both, 0, kInner), slice(both, kInner, kInner)}, {}, {{F32, TOKENS, {tokens, kInner}}});
      x = b.op(MLXSHIM_OP_ADD, {x, linear(h, w[3], kHidden)}, {}, {hidden});
    }
    x = b.op(MLXSHIM_OP_GATHER_ROWS, {x, which}, {}, {{F32, ROWS, {rows, kHidden}}});
    auto logits = b.op(MLXSHIM_OP_LINEAR, in(x, weights.back()), {MLXSHIM_QUANT_AFFINE, 8, 32}, {{F32, ROWS, {rows, kVocabulary}}});
    b.output(b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {rows}}}));
    return b;
  }
};

}  // namespace

int main(int argc, char** argv) {
  auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t tokens = number(1, 1), before = number(2, 0), steps = number(3, 50), sequences = number(4, 1);
  Model model(number(5, 0));
  const int64_t room = before + tokens * (steps + 2);
  int64_t state = model.session.make_state(sequences, room, std::vector<mlxshim_layer>(kLayers, layer(kKvHeads, kDim, kDim)));
  auto run = [&](int64_t program, int64_t at, int64_t n) {
    std::vector<int32_t> ids, positions, slots, offsets{0}, contexts, rows;
    for (int64_t s = 0; s < sequences; s++) {
      for (int64_t i = 0; i < n; i++) {
        ids.push_back(int32_t(model.random.below(kVocabulary)));
        positions.push_back(int32_t(at + i));
      }
      slots.push_back(int32_t(s));
      offsets.push_back(int32_t(ids.size()));
      contexts.push_back(int32_t(at + n));
      rows.push_back(int32_t(ids.size()) - 1);
    }
    std::vector<int64_t> out(1);
    OK(run_raw(program, {int64_t(ids.size()), sequences, sequences},
               {ids.data(), positions.data(), slots.data(), offsets.data(), contexts.data(), rows.data()}, out));
    read<int32_t>(out[0], sequences);
  };
  if (before > 0) {
    int64_t fill = model.session.load(model.program(64 * sequences, sequences, sequences), state);
    for (int64_t at = 0; at < before; at += 64) run(fill, at, std::min<int64_t>(64, before - at));
  }
  int64_t program = model.session.load(model.program(tokens * sequences, sequences, sequences), state);
  // Of the process: for machines that others work on as well.
  auto processor = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  std::vector<double> times, busy;
  for (int64_t i = 0; i < steps; i++) {
    const double before_run = processor();
    auto start = std::chrono::steady_clock::now();
    run(program, tokens > 1 ? before : before + i, tokens);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    busy.push_back(processor() - before_run);
  }
  std::sort(times.begin(), times.end());
  std::sort(busy.begin(), busy.end());
  const double median = times[times.size() / 2];
  std::printf("%d x %d tokens after %d: median %.3f ms, best %.3f ms, %.1f tok/s (best %.1f); processor time %.3f ms\n", int(sequences), int(tokens),
              int(before), median * 1e3, times[0] * 1e3, double(tokens * sequences) / median, double(tokens * sequences) / times[0], busy[busy.size() / 4] * 1e3);
  return failures ? 1 : 0;
}
