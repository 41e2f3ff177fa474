// The sizes and field offsets of the ABI's parameter blocks, so that the other side can check its own.
#pragma once

#include <cstdint>
#include <span>

namespace mlxcel {

// For every block in the header's order: its size, then the offsets of its fields.
std::span<const int64_t> layout_table();

}  // namespace mlxcel
