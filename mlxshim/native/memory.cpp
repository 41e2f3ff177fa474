#include "memory.h"

#include <new>

#if defined(_WIN32)
#define NOMINMAX
#include <windows.h>
#else
#include <sys/mman.h>
#endif

namespace mlxcel::native {

namespace {

// Large memory comes from the system itself and goes back to it: malloc would take twice as much to find an address that a
// large page can begin at, and of what is given back keeps holes that are too small for the next one. Sanitizers watch
// only what malloc gives.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFromSystem = false;
#else
constexpr bool kFromSystem = true;
#endif

constexpr size_t kSmallPage = 4096;

size_t rounded_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

#if defined(_WIN32)
char* map_memory(size_t bytes) {
  return static_cast<char*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
}
void unmap_memory(char* data, size_t) { VirtualFree(data, 0, MEM_RELEASE); }
#else
void unmap_memory(char* data, size_t bytes) { munmap(data, bytes); }

// Begins at a large page.
char* map_memory(size_t bytes) {
  const size_t all = bytes + Buffer::kLargePage;
  void* at = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(at);
  const size_t before = rounded_up(size_t(begin), Buffer::kLargePage) - size_t(begin), behind = all - before - bytes;
  if (before > 0) munmap(begin, before);
  if (behind > 0) munmap(begin + before + bytes, behind);
#ifdef MADV_HUGEPAGE
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return begin + before;
}
#endif

}  // namespace

Buffer::Buffer(const std::shared_ptr<Meter>& meter, size_t bytes) {
  // Whole lines, and one more, so that whole vectors may be read at the end.
  const size_t whole = rounded_up(bytes, kLine) + kLine;
  if (kFromSystem && bytes >= kLargePage) {
    const size_t mapped = rounded_up(whole, kSmallPage);
    data_ = {map_memory(mapped), Free{mapped}};
    if (!data_) throw std::bad_alloc();
  } else {
    data_ = {static_cast<char*>(::operator new(whole, std::align_val_t(kLine))), Free{0}};
  }
  size_ = bytes;
  charge_ = Charge(meter, int64_t(bytes));
}

void Buffer::Free::operator()(char* data) const {
  if (mapped > 0)
    unmap_memory(data, mapped);
  else
    ::operator delete(data, std::align_val_t(kLine));
}

}  // namespace mlxcel::native
