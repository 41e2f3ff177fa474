// A file for positioned 64-bit reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "handles.h"

namespace mlxcel {

class File : public Object {
 public:
  static constexpr Kind kKind = Kind::kFile;

  // Opens the file at an absolute UTF-8 path. Throws MLXSHIM_ERR_IO with the path and the system's words.
  explicit File(std::string path);
  ~File() override;

  // Reads exactly n bytes from offset on. Throws MLXSHIM_ERR_IO where the file is shorter or the system fails.
  void read(void* to, size_t n, int64_t offset) const;

  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace mlxcel
