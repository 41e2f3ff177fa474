#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "file.h"
#include "status.h"

namespace mlxcel {

File::File(std::string path) : Object(kKind), path_(std::move(path)) {
  require(std::filesystem::path(path_).is_absolute(), "path ", path_, " is not absolute");
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(MLXSHIM_ERR_IO, "cannot open ", path_, ": ", std::strerror(errno));
  struct stat facts;
  if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    fail(MLXSHIM_ERR_IO, "cannot read ", path_, ": it is not a regular file");
  }
  size_ = facts.st_size;
}

File::~File() { ::close(descriptor_); }

void File::read(void* to, size_t n, int64_t offset) const {
  char* at = static_cast<char*>(to);
  while (n > 0) {
    ssize_t got = ::pread(descriptor_, at, std::min(n, size_t(1) << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(MLXSHIM_ERR_IO, "cannot read ", path_, " at ", offset, ": ", std::strerror(errno));
    if (got == 0) fail(MLXSHIM_ERR_IO, path_, " ends at ", offset, ", ", n, " bytes too early");
    at += got;
    offset += got;
    n -= size_t(got);
  }
}

}  // namespace mlxcel
