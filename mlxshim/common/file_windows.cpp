#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <fcntl.h>
#include <io.h>
#include <share.h>
#include <windows.h>

#include <algorithm>
#include <filesystem>

#include "file.h"
#include "status.h"

namespace mlxcel {

File::File(std::string path) : Object(kKind), path_(std::move(path)) {
  int units = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path_.data(), int(path_.size()), nullptr, 0);
  require(units > 0, "path ", path_, " is not UTF-8");
  std::wstring wide(size_t(units), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, path_.data(), int(path_.size()), wide.data(), units);
  std::filesystem::path native(wide);
  require(native.is_absolute(), "path ", path_, " is not absolute");
  // Paths of 260 characters and more open only with this prefix, which takes no slashes.
  wide = native.make_preferred().wstring();
  bool prefixed = wide.rfind(L"\\\\?\\", 0) == 0 || wide.rfind(L"\\\\.\\", 0) == 0;
  if (wide.size() >= 260 && !prefixed) {
    bool share = wide.rfind(L"\\\\", 0) == 0;
    wide = share ? L"\\\\?\\UNC" + wide.substr(1) : L"\\\\?\\" + wide;
  }
  errno_t error;
  // A virus scanner may hold a file that was just downloaded: for three seconds at most it is tried again.
  for (DWORD wait = 10, waited = 0;; waited += wait, wait = std::min<DWORD>(2 * wait, 200)) {
    error = _wsopen_s(&descriptor_, wide.c_str(), _O_RDONLY | _O_BINARY, _SH_DENYNO, 0);
    if (error == 0 || _doserrno != ERROR_SHARING_VIOLATION || waited >= 3000) break;
    Sleep(wait);
  }
  if (error != 0) fail(MLXSHIM_ERR_IO, "cannot open ", path_, ": error ", error);
  size_ = _filelengthi64(descriptor_);
  if (size_ < 0) {
    _close(descriptor_);
    fail(MLXSHIM_ERR_IO, "cannot read ", path_, ": it is not a regular file");
  }
}

File::~File() { _close(descriptor_); }

void File::read(void* to, size_t n, int64_t offset) const {
  HANDLE handle = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor_));
  char* at = static_cast<char*>(to);
  while (n > 0) {
    OVERLAPPED where = {};
    where.Offset = DWORD(offset);
    where.OffsetHigh = DWORD(offset >> 32);
    DWORD got = 0;
    if (!ReadFile(handle, at, DWORD(std::min(n, size_t(1) << 30)), &got, &where) && GetLastError() != ERROR_HANDLE_EOF)
      fail(MLXSHIM_ERR_IO, "cannot read ", path_, " at ", offset, ": error ", GetLastError());
    if (got == 0) fail(MLXSHIM_ERR_IO, path_, " ends at ", offset, ", ", n, " bytes too early");
    at += got;
    offset += got;
    n -= got;
  }
}

}  // namespace mlxcel
