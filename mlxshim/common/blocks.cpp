#include "blocks.h"

#include <algorithm>
#include <cstring>

#include "convert.h"
#include "dtype.h"

namespace mlxcel {

namespace {

uint16_t half_at(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }

// The low nibbles of eight bytes, side by side.
uint32_t low_nibbles(uint64_t x) {
  x &= 0x0f0f0f0f0f0f0f0f;
  x = (x | x >> 4) & 0x00ff00ff00ff00ff;
  x = (x | x >> 8) & 0x0000ffff0000ffff;
  return uint32_t(x | x >> 16);
}

void put_nibbles(const uint8_t* q, char* to) {
  uint64_t half[2];
  std::memcpy(half, q, sizeof half);
  const uint32_t words[4] = {low_nibbles(half[0]), low_nibbles(half[1]), low_nibbles(half[0] >> 4),
                             low_nibbles(half[1] >> 4)};
  std::memcpy(to, words, sizeof words);
}

// Flipping the top bit of a byte raises it by 128.
void put_bytes(const uint8_t* q, char* to) {
  for (int i = 0; i < 32; i++) to[i] = char(q[i] ^ 0x80);
}

// Makes the field of n blocks.
void convert(const FileLayout& layout, int64_t dtype, const uint8_t* from, int64_t n, char* to) {
  const int64_t size = layout.file_unit(), unit = layout.unit(dtype);
  if (layout.field == MLXSHIM_FIELD_ELEMENTS) {
    if (layout.blocks == MLXSHIM_BLOCKS_Q8_0)
      for (int64_t i = 0; i < n; i++) put_bytes(from + i * size + 2, to + i * unit);
    else
      for (int64_t i = 0; i < n; i++) put_nibbles(from + (i + 1) * size - 16, to + i * unit);
    return;
  }
  const bool stored = layout.blocks == MLXSHIM_BLOCKS_Q4_1;  // the bias
  const int64_t at = stored && layout.field == MLXSHIM_FIELD_BIASES ? 2 : 0;
  const float factor = layout.field == MLXSHIM_FIELD_SCALES || stored          ? 1.0f
                       : layout.blocks == MLXSHIM_BLOCKS_Q4_0 ? -8.0f
                                                              : -128.0f;
  for (int64_t i = 0; i < n; i++) {
    const uint16_t half = half_at(from + i * size + at);
    if (dtype == MLXSHIM_DTYPE_F32 || factor != 1.0f) {  // a power of two: exact, unless the result is too large for it
      const float value = factor * half_to_float(half);
      convert_floats(&value, MLXSHIM_DTYPE_F32, to + i * unit, dtype, 1);
    } else {
      std::memcpy(to + i * unit, &half, 2);
    }
  }
}

}  // namespace

int64_t FileLayout::file_unit() const {
  switch (blocks) {
    case MLXSHIM_BLOCKS_Q4_0: return 18;
    case MLXSHIM_BLOCKS_Q4_1: return 20;
    case MLXSHIM_BLOCKS_Q8_0: return 34;
    default: return 1;
  }
}

int64_t FileLayout::unit(int64_t dtype) const {
  if (blocks == MLXSHIM_BLOCKS_NONE) return 1;
  if (field != MLXSHIM_FIELD_ELEMENTS) return dtype_size(dtype);
  return blocks == MLXSHIM_BLOCKS_Q8_0 ? 32 : 16;
}

const uint8_t* FileBuffer::read(const File& file, int64_t offset, int64_t n) {
  if (file_ != &file || offset_ != offset || int64_t(bytes_.size()) != n) {
    file_ = nullptr;
    bytes_.resize(size_t(n));
    file.read(bytes_.data(), size_t(n), offset);
    file_ = &file;
    offset_ = offset;
  }
  return bytes_.data();
}

void read_blocks(const File& file, int64_t offset, const FileLayout& layout, int64_t dtype, char* to, int64_t at,
                 int64_t n, FileBuffer& buffer) {
  constexpr int64_t kPiece = 128 << 10;  // stays in the processor's cache
  const int64_t unit = layout.unit(dtype), size = layout.file_unit();
  // In rows, of which one is as good as another where they are in order.
  const int64_t row = layout.head_rows ? layout.row_bytes / size * unit : unit;
  const int64_t row_bytes = layout.head_rows ? layout.row_bytes : size;
  const int64_t head = std::max<int64_t>(layout.head_rows, 1), half = head / 2;
  const int64_t heads_at_once = std::max<int64_t>(kPiece / (head * row_bytes), 1);
  std::vector<char> whole;  // of a row that is wanted in part
  for (int64_t end = at + n; at < end;) {
    const int64_t first = at / row / head;
    const int64_t heads = std::min(heads_at_once, (end - 1) / row / head + 1 - first);
    const uint8_t* from = buffer.read(file, offset + first * head * row_bytes, heads * head * row_bytes);
    const int64_t stop = std::min(end, (first + heads) * head * row);
    if (layout.head_rows == 0 && at % row == 0 && stop % row == 0) {
      convert(layout, dtype, from, (stop - at) / row, to);
      to += stop - at;
      at = stop;
      continue;
    }
    while (at < stop) {
      const int64_t r = at / row - first * head, in_head = r % head;
      const int64_t stored = layout.head_rows == 0 ? r : r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
      const int64_t skip = at % row, take = std::min(row - skip, stop - at);
      const uint8_t* source = from + stored * row_bytes;
      if (layout.blocks == MLXSHIM_BLOCKS_NONE) {
        std::memcpy(to, source + skip, size_t(take));
      } else if (take == row) {
        convert(layout, dtype, source, row / unit, to);
      } else {
        whole.resize(size_t(row));
        convert(layout, dtype, source, row / unit, whole.data());
        std::memcpy(to, whole.data() + skip, size_t(take));
      }
      to += take;
      at += take;
    }
  }
}

}  // namespace mlxcel
