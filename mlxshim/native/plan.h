// The static schedule of a program: its ops as stages, and where everything lies that they work with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stages.h"
#include "weights.h"

namespace mlxcel::native {

// What a place is bound to when a program runs.
struct PlaceFacts {
  enum Kind { kUnused, kInput, kConstant, kWork, kView } kind = kUnused;
  int32_t input = -1;              // kInput: of the program
  const char* constant = nullptr;  // kConstant
  Place base = -1;                 // kView: inside of this one …
  int64_t offset = 0;              // … so many bytes; kWork: in the arena
  size_t bytes = 0;                // kWork: for the recorded counts
  int first = -1, last = -1;       // kWork: the stages that it is in use for
};

struct Plan {
  std::vector<StagePointer> stages;
  std::vector<Extent> stage_extents;
  std::vector<PlaceFacts> places;
  std::vector<Rows> outputs;  // of the program, as f32 where its type is of floats
  size_t arena_bytes = 0;
};

// Plans a program. Throws Status with the number of the op that is to blame.
Plan make_plan(const Program& program, NativeWeights& weights, const State* state);

}  // namespace mlxcel::native
