// What the host knows of a state without asking the device: how long each sequence is, and which tokens are stored.
// With it every number that will index memory is checked before a run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program.h"

namespace mlxcel {

// The host arguments of one run.
struct RunArguments {
  Counts counts;
  std::vector<const void*> inputs;  // live rows only
  bool overwrites = false;          // some sequence is shortened before it is written

  const int32_t* ints(int32_t input) const { return static_cast<const int32_t*>(inputs[size_t(input)]); }
};

class Ledger {
 public:
  explicit Ledger(const StateShape& shape);

  int64_t& length(int64_t slot, size_t layer) { return lengths_[size_t(slot) * layers_ + layer]; }
  int64_t length(int64_t slot, size_t layer) const { return lengths_[size_t(slot) * layers_ + layer]; }

  // The token that is stored for a slot is below this; 0: none is.
  int64_t& token_bound(int64_t slot) { return token_bounds_[size_t(slot)]; }
  int64_t token_bound(int64_t slot) const { return token_bounds_[size_t(slot)]; }

  // Whether the run writes where a sequence has rows already, that is, whether it shortens it first.
  bool overwrites(const Program& program, const RunArguments& run) const;
  // Before the run is issued: a sequence that it shortens is that short from now on, even if it fails.
  void begin(const Program& program, const RunArguments& run);
  // After the run is issued: sequences are as long as `contexts` says, and tokens are stored.
  void commit(const Program& program, const RunArguments& run);

 private:
  size_t layers_;
  std::vector<int64_t> lengths_;  // by slot, then layer
  std::vector<int64_t> token_bounds_;
};

// Throws MLXSHIM_ERR_ARGUMENT where the run does not fit the program or the state (null: the program has none).
void check_run(const Program& program, const StateShape* shape, const Ledger* ledger, const RunArguments& run);

}  // namespace mlxcel
