// What files hold instead of the bytes of a weight: the blocks of GGUF, and heads whose halves are interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "file.h"

namespace mlxcel {

struct FileLayout {
  int64_t blocks = 0, field = 0;         // MLXSHIM_BLOCKS_…, MLXSHIM_FIELD_…
  int64_t head_rows = 0, row_bytes = 0;  // see mlxshim_part

  // Whether the file holds the bytes as they are.
  bool plain() const { return blocks == 0 && head_rows == 0; }
  // Bytes of a block in the file; 1 without blocks.
  int64_t file_unit() const;
  // Bytes that are made of a block for a weight of a dtype; 1 without blocks.
  int64_t unit(int64_t dtype) const;
  // Bytes in the file of so many of the weight, a multiple of unit().
  int64_t file_bytes(int64_t bytes, int64_t dtype) const { return bytes / unit(dtype) * file_unit(); }
};

// A piece of a file, kept for who needs it again at once.
class FileBuffer {
 public:
  // n bytes from offset on, valid until the next call. Throws MLXSHIM_ERR_IO.
  const uint8_t* read(const File& file, int64_t offset, int64_t n);

 private:
  std::vector<uint8_t> bytes_;
  const File* file_ = nullptr;
  int64_t offset_ = 0;
};

// Makes n bytes, from byte `at` on, of what the file holds from offset on. Throws MLXSHIM_ERR_IO.
void read_blocks(const File& file, int64_t offset, const FileLayout& layout, int64_t dtype, char* to, int64_t at,
                 int64_t n, FileBuffer& buffer);

}  // namespace mlxcel
