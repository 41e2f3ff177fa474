#include "threads.h"

#include <algorithm>

#include "topology.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace mlxcel::native {

namespace {

// About 50 us of waiting; a pause takes 40 to 140 cycles. Much more than any stage's imbalance, much less than a step.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#endif
}

const Topology& topology() {
  static const Topology known = read_topology();
  return known;
}

}  // namespace

int default_threads() { return std::max(1, std::min(int(topology().cores.size()), topology().quota)); }

void Gate::wait_change(int32_t old, int spins) const {
  for (int i = 0; i < spins; i++) {
    if (read() != old) return;
    pause();
  }
  while (read() == old) value_.wait(old, std::memory_order_acquire);
}

void Pool::dispatch(int threads, Function function, const void* context) {
  while (int(workers_.size()) < threads - 1) {
    const int number = int(workers_.size()) + 1;
    auto worker = std::make_unique<Worker>();
    Worker& self = *worker;
    self.thread = std::thread([this, &self, number] { work(self, number); });
    workers_.push_back(std::move(worker));
  }
  // Where threads outnumber the cores, the one that is waited for may need the core of the one that waits.
  team_.spins_ = threads <= default_threads() ? kSpins : 0;
  function_ = function;
  context_ = context;
  for (int i = 0; i < threads - 1; i++) {
    Gate& orders = workers_[size_t(i)]->orders;
    orders.write(orders.read() + 1);
  }
  function(context, team_, 0);
  team_.barrier([] {});
}

void Pool::work(Worker& self, int number) {
  pin_thread(topology(), number);
  for (int32_t seen = 0, spins = 0;; seen++) {
    self.orders.wait_change(seen, spins);
    if (ending_) return;
    spins = team_.spins_;
    function_(context_, team_, number);
    team_.barrier([] {});
  }
}

Pool::~Pool() {
  ending_ = true;
  for (auto& worker : workers_) {
    worker->orders.write(worker->orders.read() + 1);
    worker->thread.join();
  }
}

Pool& pool() {
  static Pool* one = new Pool;
  return *one;
}

}  // namespace mlxcel::native
