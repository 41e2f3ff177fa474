// Memory that is counted, so that a context can say what it holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace mlxcel::native {

// Bytes in use, and the most since the last reset.
class Meter {
 public:
  void add(int64_t bytes) {
    const int64_t now = active_.fetch_add(bytes) + bytes;
    for (int64_t peak = peak_.load(); now > peak && !peak_.compare_exchange_weak(peak, now);) {
    }
  }
  void remove(int64_t bytes) { active_.fetch_sub(bytes); }
  int64_t active() const { return active_.load(); }
  int64_t peak() const { return peak_.load(); }
  void reset_peak() { peak_.store(active_.load()); }

 private:
  std::atomic<int64_t> active_{0}, peak_{0};
};

// Counts some bytes for as long as it lives.
class Charge {
 public:
  Charge() = default;
  Charge(std::shared_ptr<Meter> meter, int64_t bytes) : meter_(std::move(meter)), bytes_(bytes) { meter_->add(bytes_); }
  Charge(Charge&& other) noexcept { swap(other); }
  Charge& operator=(Charge&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Charge() {
    if (meter_) meter_->remove(bytes_);
  }

 private:
  void swap(Charge& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
  }

  std::shared_ptr<Meter> meter_;
  int64_t bytes_ = 0;
};

// Memory that begins at a cache line. It is not cleared, and the system gives pages of it only when they are touched: large
// ones, since memory that is read in one go is read faster then, and touched faster for the first time.
class Buffer {
 public:
  static constexpr size_t kLine = 64, kLargePage = size_t(2) << 20;

  Buffer() = default;
  // Throws std::bad_alloc.
  Buffer(const std::shared_ptr<Meter>& meter, size_t bytes);

  char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::shared_ptr<char> data_;
  size_t size_ = 0;
  Charge charge_;
};

}  // namespace mlxcel::native
