#include "threads.h"

#include <algorithm>
#include <exception>

#include "topology.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace mlxcel::native {

namespace {

// 10 to 30 us of waiting; a pause takes 40 to 140 cycles. More than the parts of a stage differ by on a processor that
// nobody else uses; and less than it takes to wake a thread up is not worth sleeping for.
constexpr int kSpins = 500;

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#endif
}

// Never destroyed, as the pool is: its threads may still look while the process ends.
const Topology& topology() {
  static const Topology* known = new Topology(read_topology());
  return *known;
}

// Where threads outnumber the cores, the one that is waited for may need the core of the one that waits.
int spins_of(int threads) { return threads <= default_threads() ? kSpins : 0; }

}  // namespace

int default_threads() { return std::clamp(std::min(int(topology().cores.size()), topology().quota), 1, kMostThreads); }

uint64_t Pool::Open::pack() const {
  return uint64_t(sequence) << 32 | uint64_t(parts) << 20 | uint64_t(next) << 8 | uint64_t(threads);
}

Pool::Open Pool::Open::unpack(uint64_t packed) {
  return {uint32_t(packed >> 32), int(packed >> 20 & 0xfff), int(packed >> 8 & 0xfff), int(packed & 0xff)};
}

void Pool::run(int threads, const Job& job) {
  std::lock_guard lock(mutex_);
  threads = std::clamp(threads, 1, kMostThreads);
  if (threads == 1) {
    for (int stage = 0; stage < job.stages(); stage++) {
      for (int part = 0; part < job.parts(stage); part++) job.run(stage, part, 0);
      job.finish(stage, 0);
    }
    return;
  }
  start_workers(threads - 1);
  job_ = &job;
  stage_ = 0;
  open(Open::unpack(open_.load()).sequence + 1, threads, 0);
  jobs_.advance();
  join(0);
}

void Pool::open(uint32_t sequence, int threads, int thread) {
  const int count = job_->stages();
  int parts = 0;
  for (; stage_ < count && (parts = job_->parts(stage_)) == 0; stage_++) job_->finish(stage_, thread);
  done_.store(0, std::memory_order_relaxed);
  open_.store(Open{sequence, parts, 0, stage_ < count ? threads : 0}.pack(), std::memory_order_release);
  stages_.advance();
}

void Pool::join(int thread) {
  for (;;) {
    uint64_t seen = open_.load(std::memory_order_acquire);
    const Open now = Open::unpack(seen);
    if (thread >= now.threads) return;
    if (now.next == now.parts) {
      wait(now.sequence, spins_of(now.threads));
      continue;
    }
    Open claimed = now;
    claimed.next++;
    if (!open_.compare_exchange_strong(seen, claimed.pack(), std::memory_order_acq_rel)) continue;
    job_->run(stage_, now.next, thread);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == now.parts) {
      job_->finish(stage_, thread);
      stage_++;
      open(now.sequence + 1, now.threads, thread);
    }
  }
}

void Pool::wait(uint32_t sequence, int spins) const {
  auto over = [&] { return Open::unpack(open_.load(std::memory_order_acquire)).sequence != sequence; };
  for (int i = 0; i < spins; i++) {
    if (over()) return;
    pause();
  }
  // The gate moves after the stage: if it is still the same stage once the gate is read, the gate will move yet.
  for (int32_t gate = stages_.read(); !over(); gate = stages_.read()) stages_.sleep(gate);
}

void Pool::start_workers(int count) {
  while (int(workers_.size()) < count) {
    const int thread = int(workers_.size()) + 1;
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

void Pool::work(int thread) {
  pin_thread(topology(), thread);
  for (int32_t seen = 0; !ending_.load();) {
    join(thread);
    for (int i = 0; i < kSpins && thread < default_threads() && jobs_.read() == seen; i++) pause();
    jobs_.sleep(seen);
    seen = jobs_.read();
  }
}

Pool::~Pool() {
  ending_ = true;
  jobs_.advance();
  for (auto& worker : workers_) worker.join();
}

Pool& pool() {
  static Pool* one = new Pool;
  return *one;
}

namespace {

// One stage over a range; the first exception is kept.
class RangeJob : public Job {
 public:
  RangeJob(int parts, int64_t n, const std::function<void(int64_t, int64_t)>& f) : parts_(parts), n_(n), f_(f) {}

  int stages() const override { return 1; }
  int parts(int) const override { return parts_; }
  void run(int, int part, int) const override {
    try {
      f_(n_ * part / parts_, n_ * (part + 1) / parts_);
    } catch (...) {
      if (!failed_.exchange(true)) thrown_ = std::current_exception();
    }
  }
  void finish(int, int) const override {}

  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  const int parts_;
  const int64_t n_;
  const std::function<void(int64_t, int64_t)>& f_;
  mutable std::atomic<bool> failed_{false};
  mutable std::exception_ptr thrown_;
};

}  // namespace

void parallel_for(int threads, int64_t n, const std::function<void(int64_t begin, int64_t end)>& f) {
  if (n <= 0) return;
  if (n == 1) return f(0, 1);
  // A few parts a thread, so that one that is held up does not hold up the others for long.
  const RangeJob job(int(std::min<int64_t>(n, int64_t(4) * threads)), n, f);
  pool().run(threads, job);
  job.rethrow();
}

}  // namespace mlxcel::native
