// Logits that are no numbers: the choice is -1, and the step that embeds it reads nothing outside of the table.
#include "abi.h"

using namespace test;

namespace {

const std::vector<float> kNan(8, NAN);

}  // namespace

TEST(a_stored_choice_of_nothing) {
  // The next step embeds the token that was stored. Run under AddressSanitizer.
  Session session;
  int64_t state = session.make_state(1, 16, {});
  Builder b;
  auto id = b.input({I32, TOKENS, {1}}), slot = b.input({I32, TOKENS, {1}}), logits = b.input({F32, ROWS, {1, 8}}),
       row_slot = b.input({I32, ROWS, {1}});
  auto loaded = b.op(MLXSHIM_OP_LOAD_TOKENS, {id, slot}, {}, {{I32, TOKENS, {1}}});
  auto table = b.weight(session.add(F32, {8, 32}, std::vector<float>(8 * 32, 1.5f)));
  auto x = b.op(MLXSHIM_OP_EMBED, {loaded, table}, {0, 0, 0}, {{F32, TOKENS, {1, 32}}});
  auto best = b.op(MLXSHIM_OP_ARGMAX, {logits}, {}, {{I32, ROWS, {1}}});
  b.op(MLXSHIM_OP_STORE_TOKENS, {best, row_slot}, {}, {});
  b.output(best);
  b.output(x);
  int64_t program = session.load(b, state);
  const int32_t zero = 0;
  for (int32_t token : {3, MLXSHIM_TOKEN_LAST, MLXSHIM_TOKEN_LAST}) {
    std::vector<int64_t> out(2);
    if (!OK(run_raw(program, {1, 1, 1}, {&token, &zero, kNan.data(), &zero}, out))) return;
    CHECK_EQUAL(read<int32_t>(out[0], 1)[0], -1);
    for (float e : read<float>(out[1], 32)) CHECK(e == 1.5f);
  }
}
