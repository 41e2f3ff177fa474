// The threads that compute: one pool for the process, used by one step at a time.
//
// A step is one function that every thread of a team runs from beginning to end, with barriers inside: there are no task
// queues. The thread that asks for the step is number 0 of the team.
//
// Others are not starved: there are no more threads than physical cores that the process may use (and than its cgroup's
// quota pays for), the one that the caller brings included. Between the stages of a step a thread that waits spins for
// some microseconds only and then sleeps, also after a step, so that an idle model takes no time at all.
// Where there are more threads than cores nobody spins. A server that wants a core for itself asks for a thread fewer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mlxcel::native {

// How many threads the pool would use by itself: physical cores of the process's affinity, bounded by its quota.
int default_threads();

// A number that threads wait on.
class Gate {
 public:
  explicit Gate(int32_t value = 0) : value_(value) {}
  int32_t read() const { return value_.load(std::memory_order_acquire); }
  void write(int32_t value) {
    value_.store(value, std::memory_order_release);
    value_.notify_all();
  }
  // Waits until the number is another than `old`: first spinning, then asleep.
  void wait_change(int32_t old, int spins) const;

 private:
  std::atomic<int32_t> value_;
};

// The threads of a step as one of them sees them.
class Team {
 public:
  int threads() const { return threads_; }
  // Returns when all threads of the team have called it, and the last one to come has run between() before that.
  template <class Between>
  void barrier(Between&& between) {
    // Read first: once this thread has arrived, the step may end and the next one begin with another team.
    const int32_t round = round_.read();
    const int threads = threads_, spins = spins_;
    if (threads == 1) return between();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived_.store(0, std::memory_order_relaxed);
      between();
      round_.write(round + 1);
    } else {
      round_.wait_change(round, spins);
    }
  }

 private:
  friend class Pool;

  int threads_ = 1, spins_ = 0;
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) Gate round_;
};

class Pool {
 public:
  ~Pool();

  // Runs body(team, thread) on `threads` threads, the calling one among them; body must not throw.
  template <class Body>
  void run(int threads, const Body& body) {
    std::lock_guard lock(mutex_);
    team_.threads_ = threads;
    if (threads <= 1) return body(team_, 0);
    dispatch(threads, [](const void* context, Team& team, int thread) { (*static_cast<const Body*>(context))(team, thread); },
             &body);
  }

 private:
  using Function = void (*)(const void* context, Team& team, int thread);
  struct Worker {
    Gate orders{0};  // counts the steps that it was called for
    std::thread thread;
  };

  void dispatch(int threads, Function function, const void* context);
  void work(Worker& self, int number);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;  // number i+1 at i
  // Of the step that runs.
  Team team_;
  Function function_ = nullptr;
  const void* context_ = nullptr;
  bool ending_ = false;
};

// The one pool of the process. It is never destroyed: threads cannot be joined while a library is unloaded.
Pool& pool();

}  // namespace mlxcel::native
