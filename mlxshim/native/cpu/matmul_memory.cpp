#include "matmul_memory.h"

#include <mutex>
#include <new>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <sys/mman.h>
#endif

namespace mlxcel::native {

namespace {

constexpr size_t kAlignment = 64, kBlock = size_t(32) << 20;

// Zeroed pages, which take memory only when they are touched.
std::shared_ptr<void> pages(size_t bytes) {
#ifdef _WIN32
  void* at = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (!at) throw std::bad_alloc();
  return {at, [](void* p) { VirtualFree(p, 0, MEM_RELEASE); }};
#else
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(at, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return {at, [bytes](void* p) { munmap(p, bytes); }};
#endif
}

// The block that small requests are cut from. It does not keep the block alive by itself.
struct Current {
  std::mutex mutex;
  std::weak_ptr<void> block;
  size_t used = 0;
};

}  // namespace

MatrixMemory::MatrixMemory(size_t bytes) {
  static Current current;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > kBlock / 4) {
    block_ = pages(bytes);
    data_ = static_cast<uint8_t*>(block_.get());
    return;
  }
  std::lock_guard lock(current.mutex);
  block_ = current.block.lock();
  if (!block_ || current.used + bytes > kBlock) {
    block_ = pages(kBlock);
    current.block = block_;
    current.used = 0;
  }
  data_ = static_cast<uint8_t*>(block_.get()) + current.used;
  current.used += bytes;
}

}  // namespace mlxcel::native
