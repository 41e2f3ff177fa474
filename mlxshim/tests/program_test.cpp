// Programs: the small model runs; malformed variants of it are refused, or run without harm.
#include "small_model.h"

using namespace test;

namespace {

struct Loader {
  Session session;
  SmallModel model{&session};
  int64_t state = session.make_state(2, 64, SmallModel::layers());
  int64_t failed = 0;

  int32_t load(const std::vector<int64_t>& words, int64_t* program) {
    return mlxshim_program_load(session.context, session.weights, state, words.data(), int64_t(words.size()), program,
                                &failed);
  }
};

// One program of one op that is wrong in some way.
void refuse(const char* what, int64_t code, std::vector<Type> inputs, std::vector<int64_t> in,
            std::vector<int64_t> attributes, std::vector<Type> out, int32_t status = MLXSHIM_ERR_PROGRAM) {
  Session session;
  Builder b;
  b.max_tokens = 4, b.max_rows = 2, b.max_sequences = 2;
  for (auto& t : inputs) b.input(t);
  std::vector<int64_t> weights{b.weight(session.add(F32, {8, 8}, std::vector<float>(64))),
                               b.weight(session.add(U32, {8, 4}, std::vector<uint32_t>(32))),
                               b.weight(session.add(F32, {8, 1}, std::vector<float>(8))),
                               b.weight(session.add(F32, {8}, std::vector<float>(8)))};
  for (auto& v : in)
    if (v >= 100) v = weights[size_t(v - 100)];
  b.op(MLXSHIM_OP_SILU, {0}, {}, {inputs[0]});  // so that the wrong op is number 1
  b.op(code, in, attributes, out);
  auto words = b.words();
  int64_t state = session.make_state(2, 64, {layer(2, 4, 4)}), program = 0, failed = 0;
  int32_t got = mlxshim_program_load(session.context, session.weights, state, words.data(), int64_t(words.size()),
                                     &program, &failed);
  report(
      got == status && failed == 1, __FILE__, __LINE__,
      std::string(what) + ": status " + std::to_string(got) + ", op " + std::to_string(failed) + ": " + last_error());
}

const Type kX{F32, TOKENS, {4, 8}}, kIds{I32, TOKENS, {4}}, kQ{F32, TOKENS, {4, 2, 4}}, kSlots{I32, SEQUENCES, {2}},
    kOffsets{I32, OFFSETS, {3}}, kRows{I32, ROWS, {2}};

}  // namespace

TEST(the_small_model_runs) {
  Loader it;
  int64_t program = 0;
  if (!OK(it.load(it.model.builder.words(), &program))) return;
  // Each token alone, and then the same again with the first two in one step: the same tokens come out.
  std::vector<int32_t> first, second;
  for (int round = 0; round < 2; round++) {
    OK(mlxshim_state_reset(it.state, 0));
    std::vector<std::vector<int64_t>> outs;
    for (int32_t at = 0; at < 20; at++) {
      SmallModel::OneToken one(at == 0 ? 7 : MLXSHIM_TOKEN_LAST, at);
      outs.emplace_back(3);
      OK(run_raw(program, {1, 1, 1}, one.inputs(), outs.back()));
    }
    for (auto& out : outs) {
      (round ? second : first).push_back(read<int32_t>(out[0], 1)[0]);
      auto best = read<int32_t>(out[1], 1)[0];
      auto logits = read<float>(out[2], SmallModel::kVocabulary);
      for (float l : logits) CHECK(l <= logits[size_t(best)]);
    }
  }
  CHECK(first == second);
}

TEST(truncated_programs) {
  Loader it;
  auto words = it.model.builder.words();
  for (size_t n = 1; n < words.size(); n++) {
    int64_t program = 0;
    FAILS(MLXSHIM_ERR_PROGRAM, it.load({words.begin(), words.begin() + int64_t(n)}, &program));
  }
  words.push_back(0);
  int64_t program = 0;
  FAILS(MLXSHIM_ERR_PROGRAM, it.load(words, &program));
}

TEST(flipped_words) {
  Loader it;
  Random random(42);
  auto words = it.model.builder.words();
  const size_t header = 9 + 13 * 4;  // not the inputs' types: the arrays that we hand in are made for those
  int loaded = 0, ran = 0;
  SmallModel::OneToken one(7, 0);
  for (int i = 0; i < 4000; i++) {
    auto bad = words;
    for (int64_t n = 1 + random.below(2); n > 0; n--) {
      int64_t& word = bad[header + size_t(random.below(int64_t(words.size() - header)))];
      switch (random.below(4)) {
        case 0: word ^= int64_t(1) << random.below(64); break;
        case 1: word = int64_t(uint64_t(word) + uint64_t(random.below(7) - 3)); break;
        case 2: word = words[size_t(random.below(int64_t(words.size())))]; break;
        case 3: word = random.below(2) ? INT64_MAX : INT64_MIN; break;
      }
    }
    int64_t program = 0;
    int32_t status = it.load(bad, &program);
    CHECK(status == MLXSHIM_OK || status == MLXSHIM_ERR_PROGRAM || status == MLXSHIM_ERR_UNSUPPORTED);
    if (status != MLXSHIM_OK) continue;
    loaded++;
    std::vector<int64_t> out(3);
    OK(mlxshim_state_reset(it.state, 0));
    if (run_raw(program, {1, 1, 1}, one.inputs(), out) == MLXSHIM_OK) {
      ran++;
      for (int64_t v : out) OK(mlxshim_value_free(v));
    }
    OK(mlxshim_program_destroy(program));
  }
  OK(mlxshim_synchronize(it.session.context));
  std::printf("  %d of 4000 loaded, %d ran\n", loaded, ran);
  CHECK(loaded > 0 && loaded < 2000);
}

TEST(wrong_headers) {
  Loader it;
  const auto words = it.model.builder.words();
  for (size_t i = 0; i < 9; i++)
    for (int64_t value : {int64_t(-1), int64_t(0), INT64_MAX, INT64_MIN, int64_t(1) << 31}) {
      if (i == 7 && value == 0) continue;  // a program may be recorded for no rows, but then this one's types are wrong
      auto bad = words;
      bad[i] = value;
      int64_t program = 0;
      // A wrong count makes an opcode of whatever comes next.
      int32_t status = it.load(bad, &program);
      CHECK(status == MLXSHIM_ERR_PROGRAM || status == MLXSHIM_ERR_UNSUPPORTED);
      if (i == 1) CHECK_EQUAL(status, MLXSHIM_ERR_UNSUPPORTED);
      CHECK_EQUAL(program, 0);
    }
}

TEST(refused_ops) {
  refuse("unknown opcode", 99, {kX}, {0}, {}, {kX}, MLXSHIM_ERR_UNSUPPORTED);
  refuse("too few inputs", MLXSHIM_OP_ADD, {kX}, {0}, {}, {kX});
  refuse("too many inputs", MLXSHIM_OP_SILU, {kX}, {0, 0}, {}, {kX});
  refuse("an absent input that is needed", MLXSHIM_OP_ADD, {kX}, {0, -1}, {}, {kX});
  refuse("its own output", MLXSHIM_OP_SILU, {kX}, {6}, {}, {kX});
  refuse("no output", MLXSHIM_OP_SILU, {kX}, {0}, {}, {});
  refuse("attributes", MLXSHIM_OP_SILU, {kX}, {0}, {1}, {kX});
  refuse("other shapes", MLXSHIM_OP_ADD, {kX, kQ}, {0, 1}, {}, {kX});
  refuse("ints", MLXSHIM_OP_ADD, {kX, kIds}, {1, 1}, {}, {kIds});
  refuse("a wrong output", MLXSHIM_OP_SILU, {kX}, {0}, {}, {kQ});
  refuse("a type of another count", MLXSHIM_OP_RESHAPE, {kX}, {0}, {}, {{F32, TOKENS, {2, 16}}});
  refuse("more elements", MLXSHIM_OP_RESHAPE, {kX}, {0}, {}, {{F32, TOKENS, {4, 9}}});
  refuse("a slice past the end", MLXSHIM_OP_SLICE, {kX}, {0}, {4, 5}, {{F32, TOKENS, {4, 5}}});
  refuse("a slice that overflows", MLXSHIM_OP_SLICE, {kX}, {0}, {INT64_MAX, 1}, {{F32, TOKENS, {4, 1}}});
  refuse("x of another width", MLXSHIM_OP_LINEAR, {kQ}, {0, 100}, {0, 0, 0}, {{F32, TOKENS, {4, 2, 8}}});
  refuse("w that is no weight", MLXSHIM_OP_LINEAR, {kX, {F32, FIXED, {8, 8}}}, {0, 1}, {0, 0, 0}, {kX});
  refuse("scales of a dense weight", MLXSHIM_OP_LINEAR, {kX}, {0, 100, 102}, {0, 0, 0}, {kX});
  refuse("an unknown mode", MLXSHIM_OP_LINEAR, {kX}, {0, 101, 102, 102}, {9, 4, 32}, {kX});
  refuse("odd bits", MLXSHIM_OP_LINEAR, {kX}, {0, 101, 102, 102}, {1, 7, 32}, {kX});
  refuse("no bits", MLXSHIM_OP_LINEAR, {kX}, {0, 101, 102, 102}, {1, 0, 32}, {kX});
  refuse("missing biases", MLXSHIM_OP_LINEAR, {kX}, {0, 101, 102}, {1, 4, 32}, {kX});
  refuse("ids that are computed", MLXSHIM_OP_EMBED, {kX}, {0, 100}, {0, 0, 0}, {kX});
  refuse("a norm of another width", MLXSHIM_OP_RMS_NORM, {kQ}, {0, 103}, {bits(1e-5)}, {kQ});
  refuse("an infinite eps", MLXSHIM_OP_RMS_NORM, {kX}, {0, 103}, {bits(INFINITY)}, {kX});
  refuse("odd dims", MLXSHIM_OP_ROPE, {kQ, kIds}, {0, 1}, {3, 0, bits(1e4), bits(1), bits(1)}, {kQ});
  refuse("too many dims", MLXSHIM_OP_ROPE, {kQ, kIds}, {0, 1}, {6, 0, bits(1e4), bits(1), bits(1)}, {kQ});
  refuse("no base", MLXSHIM_OP_ROPE, {kQ, kIds}, {0, 1}, {4, 0, bits(0), bits(1), bits(1)}, {kQ});
  refuse("positions of other rows", MLXSHIM_OP_ROPE, {kQ, kRows}, {0, 1}, {4, 0, bits(1e4), bits(1), bits(1)}, {kQ});
  std::vector<Type> batch{kQ, kSlots, kOffsets, kSlots};
  refuse("no such layer", MLXSHIM_OP_ATTEND, batch, {0, 1, 2, 3}, {1, bits(1)}, {kQ});
  refuse("a negative layer", MLXSHIM_OP_ATTEND, batch, {0, 1, 2, 3}, {-1, bits(1)}, {kQ});
  refuse("offsets for slots", MLXSHIM_OP_ATTEND, batch, {0, 2, 2, 3}, {0, bits(1)}, {kQ});
  refuse("k of other heads", MLXSHIM_OP_KV_WRITE, {{F32, TOKENS, {4, 3, 4}}, kSlots, kOffsets, kSlots}, {0, 0, 1, 2, 3},
         {0}, {});
  refuse("q of another width", MLXSHIM_OP_ATTEND, {{F32, TOKENS, {4, 2, 5}}, kSlots, kOffsets, kSlots}, {0, 1, 2, 3},
         {0, bits(1)}, {{F32, TOKENS, {4, 2, 4}}});
  refuse("more experts than there are", MLXSHIM_OP_ROUTE, {kX}, {0}, {9, 0},
         {{I32, TOKENS, {4, 9}}, {F32, TOKENS, {4, 9}}});
  refuse("rows that are computed", MLXSHIM_OP_GATHER_ROWS, {kX, {F32, ROWS, {2}}}, {0, 1}, {}, {{F32, ROWS, {2, 8}}});
  refuse("tokens from nowhere", MLXSHIM_OP_STORE_TOKENS, {kX, kRows}, {0, 1}, {}, {});
  refuse("slots of other rows", MLXSHIM_OP_LOAD_TOKENS, {kX, kIds, kRows}, {1, 2}, {}, {kIds});
  refuse("settings of another width", MLXSHIM_OP_SAMPLE, {kX, {F32, TOKENS, {4, 4}}}, {0, 1}, {}, {kIds});
}

TEST(a_choice_is_no_row_number) {
  // What argmax gives may be -1, so it can be stored but not used to look something up.
  Loader it;
  for (int64_t code : {MLXSHIM_OP_EMBED, MLXSHIM_OP_STORE_TOKENS}) {
    Builder b;
    auto logits = b.input({F32, ROWS, {1, 8}}), slots = b.input({I32, ROWS, {1}});
    auto best = b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {1}}});
    if (code == MLXSHIM_OP_EMBED)
      b.op(code, {best, b.weight(it.session.add(F32, {8, 2}, std::vector<float>(16)))}, {0, 0, 0},
           {{F32, ROWS, {1, 2}}});
    else
      b.op(code, {best, slots}, {}, {});
    int64_t program = 0;
    if (code == MLXSHIM_OP_EMBED)
      FAILS(MLXSHIM_ERR_PROGRAM, it.load(b.words(), &program));
    else
      OK(it.load(b.words(), &program));
  }
}

TEST(weights_of_the_program) {
  Loader it;
  for (int64_t index : {int64_t(-1), int64_t(1) << 40, int64_t(999)}) {
    Builder b;
    auto x = b.input({F32, TOKENS, {1, 8}}), w = b.weight(index);
    b.output(b.op(MLXSHIM_OP_ADD, {x, w}, {}, {{F32, TOKENS, {1, 8}}}));
    int64_t program = 0;
    FAILS(MLXSHIM_ERR_PROGRAM, it.load(b.words(), &program));
    CHECK_EQUAL(it.failed, -1);
  }
}
