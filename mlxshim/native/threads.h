// The threads that compute: one pool for the process, which works at one job at a time.
//
// A job is a list of stages, and a stage a number of parts that are claimed one by one by whoever is free. The next
// stage begins when all parts of this one are done: not when all threads have come by. So a thread that the system
// keeps from running, since another process has its core, holds up the others only if it is in the middle of a part;
// were there barriers for threads instead, every stage of every step would wait for it (measured with a busy process on
// each of two cores: 500 ms a token instead of 4). Parts are the same whoever does them, and so are results.
//
// Others are not starved: there are no more threads than physical cores that the process may use (and than its cgroup's
// quota pays for), the one that the caller brings included. A thread that finds nothing to claim spins for some
// microseconds and then sleeps, between stages as between jobs: an idle model takes no time at all. Where there are
// more threads than cores nobody spins. A server that wants a core for itself asks for a thread fewer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mlxcel::native {

// How many threads the pool would use by itself: physical cores of the process's affinity, bounded by its quota.
int default_threads();

constexpr int kMostThreads = 255, kMostParts = 4095;

// What threads do together. Its methods must not throw.
class Job {
 public:
  virtual ~Job() = default;
  virtual int stages() const = 0;
  // How many parts a stage has, at most kMostParts; 0: there is nothing to do but finish().
  virtual int parts(int stage) const = 0;
  // Does a part of a stage, on thread number `thread` of the job.
  virtual void run(int stage, int part, int thread) const = 0;
  // Ends a stage, when its parts are done, on one thread.
  virtual void finish(int stage, int thread) const = 0;
};

// A number that threads wait on.
class Gate {
 public:
  int32_t read() const { return value_.load(std::memory_order_acquire); }
  void advance() {
    value_.fetch_add(1, std::memory_order_acq_rel);
    value_.notify_all();
  }
  // Sleeps until the number is another than `old`.
  void sleep(int32_t old) const {
    while (read() == old) value_.wait(old, std::memory_order_acquire);
  }

 private:
  std::atomic<int32_t> value_{0};
};

class Pool {
 public:
  ~Pool();

  // Does a job on at most kMostThreads threads, the calling one among them.
  void run(int threads, const Job& job);

 private:
  // The stage that is open: which one of all that ever were, how many parts it has (0: no job is going on), which of
  // them is claimed next, and how many threads the job has. One number, so that a claim that comes too late, for a
  // stage that is over, fails.
  struct Open {
    uint32_t sequence;
    int parts, next, threads;

    uint64_t pack() const;
    static Open unpack(uint64_t packed);
  };

  void start_workers(int count);
  void work(int thread);
  // Takes part in the job that is going on, if thread is of it, until it is over.
  void join(int thread);
  // Opens the first stage from stage_ on that has parts, or none; ends those that have none.
  void open(uint32_t sequence, int threads, int thread);
  // Returns when another stage is open.
  void wait(uint32_t sequence, int spins) const;

  std::mutex mutex_;
  std::vector<std::thread> workers_;  // thread number i + 1 at i
  Gate jobs_;                         // moves when a job begins
  Gate stages_;                       // moves when a stage is opened
  alignas(64) std::atomic<uint64_t> open_{0};
  alignas(64) std::atomic<int32_t> done_{0};  // parts of the open stage

  // Of the job. Only who has claimed a part, or ends a stage, may look at them: nobody changes them then.
  const Job* job_ = nullptr;
  int stage_ = 0;
  std::atomic<bool> ending_{false};
};

// The one pool of the process. It is never destroyed: threads cannot be joined while a library is unloaded.
Pool& pool();

// Calls f with ranges that cover 0 to n, on threads of the pool, and returns when all are done. Throws what an f threw.
void parallel_for(int threads, int64_t n, const std::function<void(int64_t begin, int64_t end)>& f);

}  // namespace mlxcel::native
