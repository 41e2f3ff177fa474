// Memory for packed matrices: they share large blocks, so that the system can map these with large pages. A step reads
// all of them once, and every page that it meets costs a look into the page tables and stops the processor's
// prefetching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace mlxcel::native {

// 64-byte aligned and zero. Throws std::bad_alloc.
class MatrixMemory {
 public:
  explicit MatrixMemory(size_t bytes);
  uint8_t* data() const { return data_; }

 private:
  std::shared_ptr<void> block_;  // goes back to the system with the last matrix in it
  uint8_t* data_;
};

}  // namespace mlxcel::native
