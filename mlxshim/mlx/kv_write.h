// Appends rows to caches in place.
#pragma once

#include <vector>

#include "state.h"

namespace mlxcel {

// Where the rows of one sequence go.
struct KvSpan {
  int64_t first_row;  // in k and v
  int64_t rows;
  int64_t position;  // in the cache
};

// Writes the rows of k [T, heads, Dk] and v [T, heads, Dv] to one cache a span, and puts into the caches arrays that
// stand for their contents after that. They share the old arrays' memory: nothing is copied whatever a cache's size,
// also while earlier steps still run, because a step only writes rows that no step before it reads.
void kv_write(std::vector<Cache*> caches, std::vector<KvSpan> spans, const mx::array& k, const mx::array& v,
              mx::Stream stream);

}  // namespace mlxcel
