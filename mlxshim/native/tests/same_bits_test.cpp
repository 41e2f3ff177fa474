// Logits have the same bits for any number of threads, any cut of the prompt, any neighbours in a step, and with a
// prefix that was computed for another sequence.
#include "llama.h"

using namespace test;

namespace {

constexpr int64_t kTokens = 700, kRows = 20, kVocabulary = 160;
const Shape kShape{4, 96, 6, 2, 16, 128, kVocabulary, 300, 5};

std::vector<int32_t> prompt(uint32_t seed) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kTokens; i++) ids.push_back(int32_t(random.below(kVocabulary)));
  return ids;
}

std::vector<int32_t> part(const std::vector<int32_t>& ids, int64_t from, int64_t to) {
  return {ids.begin() + from, ids.begin() + to};
}

struct Runner {
  Llama model;
  int64_t state, program;

  explicit Runner(int64_t threads, int64_t recorded = kTokens + 64)
      : model(kShape, threads),
        state(model.session.make_state(4, kTokens, model.state_layers())),
        program(model.session.load(model.program(recorded, 64, 4, false), state)) {}

  // The logits of the last kRows tokens of a prompt that is run in pieces of the given sizes, the last one repeated;
  // other sequences, if any, get tokens of their own in the same steps.
  std::vector<float> run(const std::vector<int32_t>& ids, std::vector<int64_t> pieces, int64_t from = 0,
                         bool neighbours = false) {
    std::vector<float> logits;
    const auto others = prompt(99);
    for (int64_t at = from, i = 0, other = 0; at < kTokens; i++) {
      const int64_t n = std::min(pieces[size_t(std::min(i, int64_t(pieces.size()) - 1))], kTokens - at);
      const int64_t wanted = std::clamp<int64_t>(at + n - (kTokens - kRows), 0, n);
      Batch batch;
      if (neighbours) batch.add(3, other, part(others, other, other + 2), 1);
      batch.add(1, at, part(ids, at, at + n), wanted);
      if (neighbours && i % 2) batch.add(0, 0, part(others, 5, 6 + i % 30), 0);
      auto got = batch.run<float>(program, kVocabulary);
      logits.insert(logits.end(), got.begin() + (neighbours ? kVocabulary : 0), got.end());
      at += n;
      other = (other + 2) % (kTokens - 2);
    }
    return logits;
  }
};

const std::vector<float>& reference() {
  static const std::vector<float> logits = Runner(1).run(prompt(7), {kTokens});
  return logits;
}

bool same(const std::vector<float>& a) {
  const auto& b = reference();
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(logits_are_numbers_and_differ) {
  const auto& all = reference();
  CHECK_EQUAL(int64_t(all.size()), kRows * kVocabulary);
  for (float x : all) CHECK(std::isfinite(x));
  CHECK(std::memcmp(all.data(), all.data() + kVocabulary, kVocabulary * sizeof(float)) != 0);
  CHECK(!same(Runner(1).run(prompt(8), {kTokens})));
}

TEST(any_threads) {
  for (int64_t threads : {2, 3, 5, 8}) {
    CHECK(same(Runner(threads).run(prompt(7), {kTokens})));
    CHECK(same(Runner(threads).run(prompt(7), {kTokens - kRows, 1})));
  }
}

TEST(any_chunks) {
  for (int64_t threads : {1, 2}) {
    Runner runner(threads);
    Random random(3);
    CHECK(same(runner.run(prompt(7), {1, 64, 33, 1, 1, 7, 128, 300})));
    CHECK(same(runner.run(prompt(7), {17})));
    std::vector<int64_t> pieces;
    for (int i = 0; i < 200; i++) pieces.push_back(1 + random.below(40));
    CHECK(same(runner.run(prompt(7), pieces)));
  }
}

TEST(any_neighbours) {
  for (int64_t threads : {1, 2}) {
    Runner runner(threads);
    CHECK(same(runner.run(prompt(7), {90, 1, 1, 50, 300, 200, 1}, 0, true)));
  }
}

TEST(a_copied_prefix) {
  for (int64_t shared : {64, 130, 655}) {
    Runner runner(2);
    auto other = prompt(7);
    for (size_t i = size_t(shared); i < other.size(); i++) other[i] = (other[i] + 1) % kVocabulary;
    Batch first;
    first.add(2, 0, other, 1);
    first.run<float>(runner.program, kVocabulary);
    OK(mlxshim_state_copy(runner.state, 2, 1, shared));
    CHECK(same(runner.run(prompt(7), {100, 3}, shared)));
    // The source is as it was, though the copy has gone on.
    Batch again;
    again.add(2, kTokens - 1, part(other, kTokens - 1, kTokens), 1);
    Batch whole;
    whole.add(0, 0, other, 1);
    CHECK(again.run<float>(runner.program, kVocabulary) == whole.run<float>(runner.program, kVocabulary));
  }
}

TEST(another_recorded_size) {
  Runner runner(2, 120);
  CHECK(same(runner.run(prompt(7), {120, 119, 1})));
}
