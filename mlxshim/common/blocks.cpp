#include "blocks.h"

#include <algorithm>
#include <cstring>

#include "convert.h"
#include "dtype.h"

namespace mlxcel {

namespace {

constexpr int64_t kElements = 32;  // of a block

// The low nibbles of eight bytes, side by side.
uint32_t low_nibbles(uint64_t x) {
  x &= 0x0f0f0f0f0f0f0f0f;
  x = (x | x >> 4) & 0x00ff00ff00ff00ff;
  x = (x | x >> 8) & 0x0000ffff0000ffff;
  return uint32_t(x | x >> 16);
}

template <int64_t Size>
void put_nibbles(const uint8_t* block, int64_t n, char* to) {
  for (; n > 0; n--, block += Size, to += kElements / 2) {
    uint64_t q[2];
    std::memcpy(q, block + Size - sizeof q, sizeof q);
    const uint32_t words[4] = {low_nibbles(q[0]), low_nibbles(q[1]), low_nibbles(q[0] >> 4), low_nibbles(q[1] >> 4)};
    std::memcpy(to, words, sizeof words);
  }
}

// Flipping the top bit of a byte raises it by 128.
template <int64_t Size>
void put_bytes(const uint8_t* block, int64_t n, char* to) {
  for (; n > 0; n--, block += Size, to += kElements) {
    uint64_t q[4];
    std::memcpy(q, block + Size - sizeof q, sizeof q);
    for (uint64_t& eight : q) eight ^= 0x8080808080808080;
    std::memcpy(to, q, sizeof q);
  }
}

// -2^k times a half.
uint16_t minus_shifted(uint16_t half, int k) {
  const int exponent = half >> 10 & 31;
  if (exponent > 0 && exponent + k < 31) return uint16_t((half + (k << 10)) ^ 0x8000);
  return float_to_half(-float(1 << k) * half_to_float(half));
}

// Of each block -2^k times the half at `from`, or for k = 0 the half itself.
template <int64_t Size>
void put_halves(const uint8_t* from, int64_t n, int k, int64_t dtype, char* to) {
  const bool wide = dtype == MLXSHIM_DTYPE_F32;
  for (; n > 0; n--, from += Size, to += wide ? 4 : 2) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    if (wide) {
      const float value = (k ? -float(1 << k) : 1.0f) * half_to_float(half);
      std::memcpy(to, &value, sizeof value);
    } else {
      if (k) half = minus_shifted(half, k);
      std::memcpy(to, &half, sizeof half);
    }
  }
}

// Makes a field of n blocks of Size bytes whose biases are -2^k times their scales; k = 0: they stand behind the scale.
template <int64_t Size>
void put_field(const FileLayout& layout, int k, int64_t dtype, const uint8_t* from, int64_t n, char* to) {
  switch (layout.field) {
    case MLXSHIM_FIELD_ELEMENTS:
      return Size > kElements ? put_bytes<Size>(from, n, to) : put_nibbles<Size>(from, n, to);
    case MLXSHIM_FIELD_SCALES: return put_halves<Size>(from, n, 0, dtype, to);
    default: return put_halves<Size>(k ? from : from + 2, n, k, dtype, to);
  }
}

void convert(const FileLayout& layout, int64_t dtype, const uint8_t* from, int64_t n, char* to) {
  switch (layout.blocks) {
    case MLXSHIM_BLOCKS_Q4_0: return put_field<18>(layout, 3, dtype, from, n, to);
    case MLXSHIM_BLOCKS_Q4_1: return put_field<20>(layout, 0, dtype, from, n, to);
    default: return put_field<34>(layout, 7, dtype, from, n, to);
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
      const int64_t stored = r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + (half ? 1 : 0));
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
