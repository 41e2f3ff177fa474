#include "memory.h"

#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mlxcel::native {

Buffer::Buffer(const std::shared_ptr<Meter>& meter, size_t bytes) {
  const size_t alignment = bytes >= kLargePage ? kLargePage : kLine;
  // Whole lines, and one more, so that whole vectors may be read at the end.
  const size_t whole = (bytes + kLine - 1) / kLine * kLine + kLine;
  data_ = {static_cast<char*>(::operator new(whole, std::align_val_t(alignment))), Free{alignment}};
#ifdef MADV_HUGEPAGE
  if (alignment == kLargePage) madvise(data_.get(), whole, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  size_ = bytes;
  charge_ = Charge(meter, int64_t(bytes));
}

void Buffer::Free::operator()(char* data) const { ::operator delete(data, std::align_val_t(alignment)); }

}  // namespace mlxcel::native
