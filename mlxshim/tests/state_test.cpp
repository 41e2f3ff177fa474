// Attention over the state against plain loops: decode, prefill, both mixed, windows, trimming, copies, stored tokens.
#include <algorithm>
#include <map>

#include "abi.h"
#include "pool.h"

using namespace test;

namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDk = 8, kDv = 6;
constexpr double kScale = 0.3;

// A program of kv_write and attend over two layers: layer 0 is full, layer 1 has a window. Inputs: q, k, v, slots,
// offsets, contexts; the same rows go to both layers. Outputs: what each layer attends to.
Builder attention(int64_t tokens, int64_t sequences) {
  Builder b;
  b.max_tokens = tokens;
  b.max_sequences = sequences;
  auto q = b.input({F32, TOKENS, {tokens, kHeads, kDk}}), k = b.input({F32, TOKENS, {tokens, kKvHeads, kDk}}),
       v = b.input({F32, TOKENS, {tokens, kKvHeads, kDv}}), slots = b.input({I32, SEQUENCES, {sequences}}),
       offsets = b.input({I32, OFFSETS, {sequences + 1}}), contexts = b.input({I32, SEQUENCES, {sequences}});
  for (int64_t layer = 0; layer < 2; layer++) {
    b.op(MLXSHIM_OP_KV_WRITE, {k, v, slots, offsets, contexts}, {layer}, {});
    b.output(b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {layer, bits(kScale)},
                  {{F32, TOKENS, {tokens, kHeads, kDv}}}));
  }
  return b;
}

// The rows of a sequence, and what attention over them gives.
struct Sequence {
  std::vector<std::vector<float>> k, v;  // by position

  std::vector<double> attend(const float* q, int64_t position, int64_t window) const {
    std::vector<double> out;
    for (int64_t h = 0; h < kHeads; h++) {
      const int64_t g = h / (kHeads / kKvHeads), from = window ? std::max<int64_t>(0, position - window + 1) : 0;
      std::vector<double> e;
      double best = -1e300, sum = 0;
      for (int64_t p = from; p <= position; p++) {
        double dot = 0;
        for (int64_t i = 0; i < kDk; i++) dot += double(q[h * kDk + i]) * k[size_t(p)][size_t(g * kDk + i)];
        e.push_back(dot * kScale);
        best = std::max(best, e.back());
      }
      for (double& x : e) sum += x = std::exp(x - best);
      for (int64_t i = 0; i < kDv; i++) {
        double y = 0;
        for (int64_t p = from; p <= position; p++) y += e[size_t(p - from)] / sum * v[size_t(p)][size_t(g * kDv + i)];
        out.push_back(y);
      }
    }
    return out;
  }
};

struct Fixture {
  Session session;
  Random random{11};
  int64_t window, state, program;
  std::map<int64_t, Sequence> slots;

  explicit Fixture(int64_t window_, int64_t max_tokens = 2000, int64_t recorded = 32, int64_t sequences = 4)
      : window(window_),
        state(
            session.make_state(sequences, max_tokens, {layer(kKvHeads, kDk, kDv), layer(kKvHeads, kDk, kDv, window_)})),
        program(session.load(attention(recorded, sequences), state)) {}

  struct Work {
    int64_t slot, start, tokens;
  };

  // Runs new random rows for each piece of work and compares what every token attends to.
  void step(std::vector<Work> work, const std::string& what) {
    std::vector<int32_t> ids, offsets{0}, contexts;
    std::vector<float> q, k, v;
    for (const Work& w : work) {
      ids.push_back(int32_t(w.slot));
      offsets.push_back(int32_t(offsets.back() + w.tokens));
      contexts.push_back(int32_t(w.start + w.tokens));
      Sequence& s = slots[w.slot];
      s.k.resize(size_t(w.start));
      s.v.resize(size_t(w.start));
      for (int64_t i = 0; i < w.tokens; i++) {
        s.k.push_back(random.normals(kKvHeads * kDk));
        s.v.push_back(random.normals(kKvHeads * kDv));
        auto row = random.normals(kHeads * kDk);
        q.insert(q.end(), row.begin(), row.end());
        k.insert(k.end(), s.k.back().begin(), s.k.back().end());
        v.insert(v.end(), s.v.back().begin(), s.v.back().end());
      }
    }
    const int64_t tokens = offsets.back();
    std::vector<int64_t> out(2);
    if (!OK(run_raw(program, {tokens, 0, int64_t(work.size())},
                    {q.data(), k.data(), v.data(), ids.data(), offsets.data(), contexts.data()}, out)))
      return;
    for (int64_t l = 0; l < 2; l++) {
      std::vector<double> want;
      const float* row = q.data();
      for (const Work& w : work)
        for (int64_t i = 0; i < w.tokens; i++, row += kHeads * kDk) {
          auto y = slots[w.slot].attend(row, w.start + i, l ? window : 0);
          want.insert(want.end(), y.begin(), y.end());
        }
      CHECK_CLOSE(read<float>(out[size_t(l)], tokens * kHeads * kDv), want, 1e-5,
                  what + ", layer " + std::to_string(l));
    }
  }

  int32_t attempt(std::vector<int32_t> ids, std::vector<int32_t> offsets, std::vector<int32_t> contexts,
                  int64_t tokens) {
    std::vector<float> q(size_t(tokens * kHeads * kDk)), k(size_t(tokens * kKvHeads * kDk)),
        v(size_t(tokens * kKvHeads * kDv));
    std::vector<int64_t> out(2);
    return run_raw(program, {tokens, 0, int64_t(ids.size())},
                   {q.data(), k.data(), v.data(), ids.data(), offsets.data(), contexts.data()}, out);
  }
};

}  // namespace

TEST(prefill_then_decode) {
  for (int64_t window : {1, 5, 100}) {
    Fixture f(window);
    f.step({{0, 0, 17}}, "prefill");
    for (int64_t p = 17; p < 24; p++) f.step({{0, p, 1}}, "decode");
    f.step({{0, 24, 9}}, "second prefill");
    f.step({{0, 33, 2}}, "two at once");
  }
}

TEST(mixed_batch) {
  Fixture f(4);
  f.step({{2, 0, 5}, {0, 0, 1}, {3, 0, 11}}, "three prefills");
  f.step({{0, 1, 1}, {3, 11, 1}, {2, 5, 1}}, "three decodes");
  f.step({{3, 12, 1}, {1, 0, 20}, {2, 6, 3}, {0, 2, 1}}, "prefill and decode");
}

TEST(sequences_alone_and_together) {
  // The same rows, alone and in a crowd: the same bits, since each sequence is attended to by itself.
  Fixture alone(6), crowd(6);
  crowd.random = Random(5);
  crowd.step({{3, 0, 7}, {2, 0, 4}}, "others");
  std::vector<float> q = alone.random.normals(9 * kHeads * kDk), k = alone.random.normals(9 * kKvHeads * kDk),
                     v = alone.random.normals(9 * kKvHeads * kDv);
  auto run_rows = [&](Fixture& f, int64_t slot, bool with_other) {
    auto qq = q, kk = k, vv = v;
    std::vector<int32_t> ids{int32_t(slot)}, offsets{0, 9}, contexts{9};
    if (with_other) {
      ids = {3, int32_t(slot)};
      offsets = {0, 1, 10};
      contexts = {8, 9};
      qq.insert(qq.begin(), size_t(kHeads * kDk), 1.f);
      kk.insert(kk.begin(), size_t(kKvHeads * kDk), 1.f);
      vv.insert(vv.begin(), size_t(kKvHeads * kDv), 1.f);
    }
    std::vector<int64_t> out(2);
    OK(run_raw(f.program, {offsets.back(), 0, int64_t(ids.size())},
               {qq.data(), kk.data(), vv.data(), ids.data(), offsets.data(), contexts.data()}, out));
    OK(mlxshim_value_free(out[1]));
    auto y = read<float>(out[0], offsets.back() * kHeads * kDv);
    y.erase(y.begin(), y.end() - 9 * kHeads * kDv);
    return y;
  };
  CHECK(run_rows(alone, 1, false) == run_rows(crowd, 0, true));
}

TEST(growth_past_the_first_capacities) {
  Fixture f(300, 1000, 500);
  int64_t before = 0;
  for (int64_t start = 0; start < 900;) {
    int64_t n = std::min<int64_t>(1 + f.random.below(220), 900 - start);
    f.step({{1, start, n}}, "growth");
    start += n;
  }
  mlxshim_state_info info{sizeof info, 0};
  OK(mlxshim_state_facts(f.state, &info));
  CHECK(info.bytes >= 900 * 2 * kKvHeads * (kDk + kDv) * 4);
  CHECK(info.bytes <= 1024 * 2 * kKvHeads * (kDk + kDv) * 4);
  OK(mlxshim_state_reset(f.state, 1));
  OK(mlxshim_state_facts(f.state, &info));
  CHECK_EQUAL(info.bytes, before);
  f.slots.clear();
  f.step({{1, 0, 3}}, "after a reset");
}

TEST(trim_and_gap) {
  Fixture f(3);
  f.step({{0, 0, 12}}, "prefill");
  f.step({{0, 7, 2}}, "shortened to 7 and written again");
  f.step({{0, 9, 1}}, "goes on");
  FAILS(MLXSHIM_ERR_ARGUMENT, f.attempt({0}, {0, 1}, {12}, 1));  // 10 tokens are there, 11 would be skipped to
  FAILS(MLXSHIM_ERR_ARGUMENT, f.attempt({1}, {0, 1}, {2}, 1));   // an empty slot
  f.step({{0, 10, 1}}, "and after the refused ones");
}

TEST(copies) {
  Fixture f(4);
  f.step({{0, 0, 20}}, "prefill");
  OK(mlxshim_state_copy(f.state, 0, 2, 13));
  f.slots[2].k.assign(f.slots[0].k.begin(), f.slots[0].k.begin() + 13);
  f.slots[2].v.assign(f.slots[0].v.begin(), f.slots[0].v.begin() + 13);
  f.step({{0, 5, 6}, {2, 13, 1}}, "the source is written, the copy goes on");
  f.step({{2, 14, 3}}, "the copy alone");
  OK(mlxshim_state_copy(f.state, 0, 2, 0));
  f.slots[2] = {};
  f.step({{2, 0, 2}}, "a copy of nothing");
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_copy(f.state, 0, 2, 12));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_copy(f.state, 0, 0, 1));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_copy(f.state, 0, 4, 1));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_copy(f.state, -1, 2, 1));
}

TEST(wrong_batches) {
  Fixture f(4, 40);
  struct {
    std::vector<int32_t> slots, offsets, contexts;
    int64_t tokens;
  } wrong[] = {
      {{4}, {0, 1}, {1}, 1},
      {{-1}, {0, 1}, {1}, 1},
      {{1000000}, {0, 1}, {1}, 1},
      {{0, 0}, {0, 1, 2}, {1, 1}, 2},
      {{0}, {1, 2}, {1}, 2},
      {{0}, {0, 2}, {1}, 1},
      {{0}, {0, 1}, {1}, 2},
      {{0, 1}, {0, 0, 2}, {1, 2}, 2},
      {{0, 1}, {0, 3, 2}, {3, 1}, 2},
      {{0, 1}, {0, -1, 2}, {1, 1}, 2},
      {{0}, {0, 1}, {0}, 1},
      {{0}, {0, 2}, {1}, 2},
      {{0}, {0, 1}, {-5}, 1},
      {{0}, {0, 1}, {41}, 1},
      {{0}, {0, 1}, {2147483647}, 1},
      {{0}, {0, 1}, {-2147483647}, 1},
      {{0, 1}, {0, 2147483647, 2}, {1, 1}, 2},
  };
  for (auto& w : wrong) FAILS(MLXSHIM_ERR_ARGUMENT, f.attempt(w.slots, w.offsets, w.contexts, w.tokens));
  FAILS(MLXSHIM_ERR_ARGUMENT, f.attempt({0}, {0, 33}, {33}, 33));
  f.step({{0, 0, 4}}, "a right one after the wrong ones");
}

TEST(double_buffered) {
  // Steps are enqueued without waiting; each reads the rows that those before it wrote.
  Fixture f(7);
  const int64_t steps = 300;
  std::vector<int32_t> slot{1}, offsets{0, 1};
  std::vector<std::vector<int64_t>> out;
  std::vector<std::vector<float>> queries;
  for (int64_t p = 0; p < steps; p++) {
    f.slots[1].k.push_back(f.random.normals(kKvHeads * kDk));
    f.slots[1].v.push_back(f.random.normals(kKvHeads * kDv));
    queries.push_back(f.random.normals(kHeads * kDk));
    std::vector<int32_t> context{int32_t(p + 1)};
    out.emplace_back(2);
    OK(run_raw(f.program, {1, 0, 1},
               {queries.back().data(), f.slots[1].k.back().data(), f.slots[1].v.back().data(), slot.data(),
                offsets.data(), context.data()},
               out.back()));
  }
  for (int64_t p = 0; p < steps; p++)
    for (int64_t l = 0; l < 2; l++)
      CHECK_CLOSE(read<float>(out[size_t(p)][size_t(l)], kHeads * kDv),
                  f.slots[1].attend(queries[size_t(p)].data(), p, l ? 7 : 0), 1e-5, "double buffered");
}

TEST(half_state) {
  // Rows of f32 in a state of f16.
  Session session;
  mlxshim_layer one = layer(1, 4, 4);
  mlxshim_state_params params{sizeof params, MLXSHIM_DTYPE_F16, 1, 8, 1, &one};
  int64_t state = 0;
  OK(mlxshim_state_create(session.context, &params, &state));
  Builder b;
  b.max_tokens = 2;
  const Type rows{F32, TOKENS, {2, 1, 4}};
  auto x = b.input(rows), slots = b.input({I32, SEQUENCES, {1}}), offsets = b.input({I32, OFFSETS, {2}}),
       contexts = b.input({I32, SEQUENCES, {1}});
  b.op(MLXSHIM_OP_KV_WRITE, {x, x, slots, offsets, contexts}, {0}, {});
  b.output(b.op(MLXSHIM_OP_ATTEND, {x, slots, offsets, contexts}, {0, bits(1)}, {rows}));
  std::vector<float> data{1, 0, 0, 0, 0, 2, 0, 1};
  std::vector<int32_t> slot{0}, ends{0, 2}, context{2};
  int64_t program = session.load_optional(b, state);
  if (!program) return;
  auto y = run<float>(program, {2, 0, 1}, {data.data(), slot.data(), ends.data(), context.data()}, 8);
  const double e = std::exp(5.0), p = e / (1 + e);  // the second row meets itself with 5, the first with 0
  CHECK_CLOSE(y, (std::vector<double>{1, 0, 0, 0, 1 - p, 2 * p, 0, p}), 2e-3, "half state");
  mlxshim_state_info info{sizeof info, 0};
  OK(mlxshim_state_facts(state, &info));
  CHECK(info.bytes >= 2 * 8 * 2 && info.bytes % (8 * 2) == 0);
}

TEST(read_only_attention) {
  // A program that attends without writing sees what is there, and no more.
  Fixture f(4);
  f.step({{0, 0, 6}}, "prefill");
  Builder b;
  auto q = b.input({F32, TOKENS, {1, kHeads, kDk}}), slots = b.input({I32, SEQUENCES, {1}}),
       offsets = b.input({I32, OFFSETS, {2}}), contexts = b.input({I32, SEQUENCES, {1}});
  b.output(
      b.op(MLXSHIM_OP_ATTEND, {q, slots, offsets, contexts}, {0, bits(kScale)}, {{F32, TOKENS, {1, kHeads, kDv}}}));
  int64_t program = f.session.load(b, f.state);
  auto row = f.random.normals(kHeads * kDk);
  std::vector<int32_t> slot{0}, ends{0, 1}, context{6};
  CHECK_CLOSE(run<float>(program, {1, 0, 1}, {row.data(), slot.data(), ends.data(), context.data()}, kHeads * kDv),
              f.slots[0].attend(row.data(), 5, 0), 1e-5, "read only");
  context[0] = 7;
  std::vector<int64_t> out(1);
  FAILS(MLXSHIM_ERR_ARGUMENT, run_raw(program, {1, 0, 1}, {row.data(), slot.data(), ends.data(), context.data()}, out));
}

TEST(stored_tokens) {
  // The best of logits is stored, and then looked up in a table of one-hot rows.
  Session session;
  const int64_t v = 9, slots = 3;
  int64_t state = session.make_state(slots, 16, {});
  std::vector<float> table(size_t(v * 32));
  for (int64_t i = 0; i < v; i++) table[size_t(i * 32)] = float(i);
  Builder b;
  b.max_tokens = b.max_rows = 3;
  auto ids = b.input({I32, TOKENS, {3}}), id_slots = b.input({I32, TOKENS, {3}}), logits = b.input({F32, ROWS, {3, v}}),
       row_slots = b.input({I32, ROWS, {3}}), history = b.input({I32, TOKENS, {3, 2}});
  auto loaded = b.op(MLXSHIM_OP_LOAD_TOKENS, {ids, id_slots}, {}, {{I32, TOKENS, {3}}});
  auto held = b.op(MLXSHIM_OP_LOAD_TOKENS, {history, id_slots}, {}, {{I32, TOKENS, {3, 2}}});
  auto w = b.weight(session.add(F32, {v, 32}, table));
  b.output(b.op(MLXSHIM_OP_EMBED, {loaded, w}, {0, 0, 0}, {{F32, TOKENS, {3, 32}}}));
  b.output(held);
  auto best = b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {3}}});
  b.op(MLXSHIM_OP_STORE_TOKENS, {best, row_slots}, {}, {});
  b.output(best);
  int64_t program = session.load(b, state);

  auto step = [&](std::vector<int32_t> id, std::vector<int32_t> id_slot, std::vector<int32_t> past,
                  std::vector<int32_t> row_slot, std::vector<int32_t> winners, std::vector<double> want_ids,
                  std::vector<int32_t> want_past) {
    std::vector<float> l(winners.size() * size_t(v));
    for (size_t r = 0; r < winners.size(); r++) l[r * size_t(v) + size_t(winners[r])] = 1;
    std::vector<int64_t> out(3);
    int64_t tokens = int64_t(id.size()), rows = int64_t(winners.size());
    if (!OK(run_raw(program, {tokens, rows, 1}, {id.data(), id_slot.data(), l.data(), row_slot.data(), past.data()},
                    out)))
      return;
    auto embedded = read<float>(out[0], tokens * 32);
    for (int64_t t = 0; t < tokens; t++) CHECK_NEAR(embedded[size_t(t * 32)], want_ids[size_t(t)], 0);
    CHECK(read<int32_t>(out[1], tokens * 2) == want_past);
    CHECK(read<int32_t>(out[2], rows) == winners);
  };
  const int32_t last = MLXSHIM_TOKEN_LAST;
  step({4, 8}, {0, 1}, {-1, -1, 3, -1}, {2, 0}, {7, 5}, {4, 8}, {-1, -1, 3, -1});
  step({last, last}, {0, 2}, {-1, last, last, last}, {0}, {1}, {5, 7}, {-1, 5, 7, 7});
  step({last, 2, last}, {0, 1, 2}, {1, 2, 3, 4, 5, last}, {1}, {8}, {1, 2, 7}, {1, 2, 3, 4, 5, 7});
  step({last}, {1}, {last, -1}, {}, {}, {8}, {8, -1});

  std::vector<int64_t> out(3);
  auto attempt = [&](int32_t id, int32_t id_slot, int32_t row_slot, int32_t past) {
    std::vector<float> l(size_t(v), 0.f);
    std::vector<int32_t> pasts{past, past};
    return run_raw(program, {1, 1, 1}, {&id, &id_slot, l.data(), &row_slot, pasts.data()}, out);
  };
  for (int32_t id : {-1, -3, 9, 2147483647}) FAILS(MLXSHIM_ERR_ARGUMENT, attempt(id, 0, 0, 0));
  for (int32_t slot : {-1, 3, 2147483647, -2147483647}) {
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(0, slot, 0, 0));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(0, 0, slot, 0));
  }
  OK(mlxshim_state_reset(state, 1));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(last, 1, 0, 0));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(0, 1, 0, last));
}

TEST(steps_do_not_depend_on_the_pool) {
  // 8 layers of keys and values: 4 MB and 134 MB. A copy of the larger one would take tens of milliseconds.
  Pool small(512), large(16384);
  auto a = small.measure(100), b = large.measure(100);
  CHECK(large.bytes() > 30 * small.bytes());
  CHECK(b.extra_bytes < 1 << 20);
  CHECK(b.extra_bytes <= a.extra_bytes + (256 << 10));
  CHECK(b.best_us < 3 * a.best_us);
}
