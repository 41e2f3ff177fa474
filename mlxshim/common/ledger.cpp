#include "ledger.h"

#include <algorithm>

#include "status.h"

namespace mlxcel {

namespace {

// The position of a sequence's first new token.
int64_t start_of(const Program& program, const RunArguments& run, int64_t s) {
  const int32_t *offsets = run.ints(program.offsets), *contexts = run.ints(program.contexts);
  return int64_t(contexts[s]) - (offsets[s + 1] - offsets[s]);
}

void check_count(const char* what, int64_t live, int64_t low, int64_t recorded) {
  require(live >= low && live <= recorded, "the run has ", live, " ", what, ", the program takes ", low, " to ",
          recorded);
}

void check_demand(const Program& program, const Ledger* ledger, const RunArguments& run, const Demand& demand) {
  const Type type = program.types[size_t(demand.input)].live(run.counts);
  const int32_t* data = run.ints(demand.input);
  const int64_t n = type.elements();
  const int64_t row = type.dims[0] ? n / type.dims[0] : 1;
  const int64_t high = demand.axis == MLXSHIM_AXIS_FIXED ? demand.high : run.counts.along(demand.axis);
  for (int64_t i = 0; i < n; i++) {
    if (data[i] == MLXSHIM_TOKEN_LAST && demand.slots >= 0) {
      int32_t slot = run.ints(demand.slots)[i / row];
      int64_t bound = ledger->token_bound(slot);
      require(bound > 0, "input ", demand.input, " asks for the last token of slot ", slot, ", which has none");
      require(bound <= high, "the last token of slot ", slot, " may be too large for input ", demand.input);
      continue;
    }
    require(data[i] >= demand.low && data[i] < high, "element ", i, " of input ", demand.input, " is ", data[i],
            ", not from ", demand.low, " to ", high - 1);
  }
  if (demand.distinct)
    for (int64_t i = 1; i < n; i++)
      for (int64_t j = 0; j < i; j++)
        require(data[i] != data[j], "input ", demand.input, " names slot ", data[i], " twice");
}

void check_batch(const Program& program, const StateShape& shape, const Ledger& ledger, const RunArguments& run) {
  const int32_t *slots = run.ints(program.slots), *offsets = run.ints(program.offsets),
                *contexts = run.ints(program.contexts);
  const int64_t sequences = run.counts.sequences;
  require(offsets[0] == 0, "offsets begin with ", offsets[0], ", not 0");
  require(offsets[sequences] == run.counts.tokens, "offsets end with ", offsets[sequences], " where the run has ",
          run.counts.tokens, " tokens");
  for (int64_t s = 0; s < sequences; s++) {
    require(offsets[s + 1] > offsets[s] && offsets[s + 1] <= run.counts.tokens, "offsets do not rise at sequence ", s);
    require(contexts[s] <= shape.max_tokens, "sequence ", s, " would have ", contexts[s], " tokens, the state holds ",
            shape.max_tokens);
    const int64_t start = start_of(program, run, s);
    require(start >= 0, "sequence ", s, " has a context of ", contexts[s], " and more new tokens than that");
    for (size_t l = 0; l < program.layers.size(); l++) {
      const int64_t length = ledger.length(slots[s], l);
      if (program.layers[l].written)
        require(start <= length, "sequence ", s, " would begin at ", start, " where slot ", slots[s], " ends at ",
                length);
      else if (program.layers[l].read)
        require(contexts[s] <= length, "sequence ", s, " has a context of ", contexts[s], " where slot ", slots[s],
                " ends at ", length);
    }
  }
}

}  // namespace

Ledger::Ledger(const StateShape& shape)
    : layers_(shape.layers.size()),
      lengths_(size_t(shape.max_sequences) * layers_),
      token_bounds_(size_t(shape.max_sequences)) {}

bool Ledger::overwrites(const Program& program, const RunArguments& run) const {
  if (program.slots < 0) return false;
  for (int64_t s = 0; s < run.counts.sequences; s++)
    for (size_t l = 0; l < layers_; l++)
      if (program.layers[l].written && start_of(program, run, s) < length(run.ints(program.slots)[s], l)) return true;
  return false;
}

void Ledger::begin(const Program& program, const RunArguments& run) {
  if (program.slots < 0) return;
  for (int64_t s = 0; s < run.counts.sequences; s++)
    for (size_t l = 0; l < layers_; l++)
      if (program.layers[l].written) {
        int64_t& now = length(run.ints(program.slots)[s], l);
        now = std::min(now, start_of(program, run, s));
      }
}

void Ledger::commit(const Program& program, const RunArguments& run) {
  if (program.slots >= 0)
    for (int64_t s = 0; s < run.counts.sequences; s++)
      for (size_t l = 0; l < layers_; l++)
        if (program.layers[l].written) length(run.ints(program.slots)[s], l) = run.ints(program.contexts)[s];
  for (const Store& store : program.stores) {
    const int64_t n = program.types[size_t(store.slots)].live(run.counts).dims[0];
    for (int64_t i = 0; i < n; i++)
      token_bound(run.ints(store.slots)[i]) = store.bound ? store.bound : int64_t(run.ints(store.tokens)[i]) + 1;
  }
}

void check_run(const Program& program, const StateShape* shape, const Ledger* ledger, const RunArguments& run) {
  check_count("tokens", run.counts.tokens, 1, program.max_tokens);
  check_count("rows", run.counts.rows, 0, program.max_rows);
  check_count("sequences", run.counts.sequences, 1, program.max_sequences);
  // Demands on slots stand before those that look a slot up, since the checker found them in that order.
  for (const Demand& demand : program.demands) check_demand(program, ledger, run, demand);
  if (program.slots >= 0) check_batch(program, *shape, *ledger, run);
}

}  // namespace mlxcel
