// One run of a program, and the parts that a schedule is made of.
//
// All values are kept as f32, whatever float type the program gives them; a cast rounds to its type. A value is a
// number of rows: what its first dimension counts. Rows past the live count are neither computed nor read.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "cpu/vector.h"
#include "state.h"

namespace mlxcel::native {

// Where values, and what else a step works with, lie: a number. The first ones are the program's values.
using Place = int32_t;

// Rows in memory: of a value, of what was prepared of one, or of other work memory.
struct Rows {
  Place place = -1;
  int64_t width = 0;   // elements of a row
  int64_t stride = 0;  // elements between two rows
};

// Which rows an op has: a live count or, of an axis that is fixed, a number.
struct Extent {
  int64_t axis = MLXSHIM_AXIS_FIXED, fixed = 1;

  int64_t live(const Counts& counts) const { return axis == MLXSHIM_AXIS_FIXED ? fixed : counts.along(axis); }
  const char* name() const {
    switch (axis) {
      case MLXSHIM_AXIS_TOKENS: return "tokens";
      case MLXSHIM_AXIS_ROWS: return "rows";
      case MLXSHIM_AXIS_SEQUENCES: return "sequences";
      default: return "fixed";
    }
  }
  bool operator==(const Extent&) const = default;
};

// What a thread knows of the run that it works at.
struct Step {
  const Program& program;
  const RunArguments& run;
  const VectorKernels& vectors;
  NativeState* state;          // null: none
  char* const* places;         // where each place begins
  const int32_t* sequence_of;  // of each token
  char* scratch;               // of this thread, for the duration of one call
  char* shared;                // of all, for the duration of one stage
  int threads;                 // that the work is divided for

  template <class T = float>
  T* row(const Rows& rows, int64_t i) const {
    return reinterpret_cast<T*>(places[rows.place]) + i * rows.stride;
  }

  // Of the run's batch.
  const int32_t* slots() const { return run.ints(program.slots); }
  const int32_t* offsets() const { return run.ints(program.offsets); }
  const int32_t* contexts() const { return run.ints(program.contexts); }
  int64_t position_of(int64_t token) const {
    const int32_t s = sequence_of[token];
    return contexts()[s] - offsets()[s + 1] + token;
  }
};

// One op that makes rows of its results out of the same rows of its inputs, without regard to other rows.
class RowOp {
 public:
  virtual ~RowOp() = default;
  virtual void run(const Step& step, int64_t begin, int64_t end) const = 0;
  virtual std::string describe() const = 0;
  // Bytes of scratch that a call needs.
  virtual size_t scratch() const { return 0; }
};

// Which part of how many.
struct Part {
  int index, count;
};

// What is done between two points where all is waited for: a number of parts that do not depend on each other, whose
// results do not depend on how many there are.
class Stage {
 public:
  virtual ~Stage() = default;
  // Into how many parts the work is divided for so many threads; 0: all of it is done in finish().
  virtual int parts(const Program& program, const RunArguments& run, int threads) const = 0;
  virtual void run(const Step& step, Part part) const = 0;
  // What one thread does when all parts are done.
  virtual void finish(const Step& step) const {}
  virtual std::string describe() const = 0;

  // Bytes of scratch that a thread needs.
  virtual size_t scratch() const { return 0; }
  // Bytes of memory that the parts share in a run.
  virtual size_t shared(const Program& program, const RunArguments& run, int threads) const { return 0; }
};

// The things, of n, that fall to a part, in whole blocks.
struct Share {
  int64_t begin, end;
  Share(int64_t n, int64_t block, Part part) {
    const int64_t blocks = (n + block - 1) / block;
    begin = blocks * part.index / part.count * block;
    end = std::min(n, blocks * (part.index + 1) / part.count * block);
  }
};

}  // namespace mlxcel::native
