#include "memory.h"

#include <new>

namespace mlxcel::native {

Buffer::Buffer(const std::shared_ptr<Meter>& meter, size_t bytes) {
  // Whole vectors may be read at the end.
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  data_.reset(static_cast<char*>(::operator new(whole, std::align_val_t(kAlignment))));
  size_ = bytes;
  charge_ = Charge(meter, int64_t(bytes));
}

void Buffer::Free::operator()(char* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }

}  // namespace mlxcel::native
