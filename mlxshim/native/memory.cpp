#include "memory.h"

#include <mutex>
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

// Memory of whole pages, for as long as it is owned. Throws std::bad_alloc.
std::shared_ptr<char> mapped(size_t bytes) {
  const size_t whole = rounded_up(bytes, kSmallPage);
  char* data = map_memory(whole);
  if (!data) throw std::bad_alloc();
  return {data, [whole](char* p) { unmap_memory(p, whole); }};
}

// What is smaller than a large page shares some with what is made next to it, weights mostly, which come and go together.
std::shared_ptr<char> shared(size_t bytes) {
  constexpr size_t kShared = 4 * Buffer::kLargePage;
  static std::mutex mutex;
  static auto* rest = new std::shared_ptr<char>;  // never destroyed, since it may be asked for while the process ends
  static size_t left = 0;
  std::lock_guard lock(mutex);
  if (left < bytes) {
    *rest = mapped(kShared);
    left = kShared;
  }
  std::shared_ptr<char> taken = *rest;
  *rest = {taken, taken.get() + bytes};
  left -= bytes;
  return taken;
}

}  // namespace

Buffer::Buffer(const std::shared_ptr<Meter>& meter, size_t bytes) {
  constexpr size_t kFew = size_t(64) << 10;
  // Whole lines, and one more, so that whole vectors may be read at the end.
  const size_t whole = rounded_up(bytes, kLine) + kLine;
  if (!kFromSystem || bytes < kFew)
    data_ = {static_cast<char*>(::operator new(whole, std::align_val_t(kLine))),
             [](char* p) { ::operator delete(p, std::align_val_t(kLine)); }};
  else
    data_ = bytes < kLargePage ? shared(whole) : mapped(whole);
  size_ = bytes;
  charge_ = Charge(meter, int64_t(bytes));
}

}  // namespace mlxcel::native
