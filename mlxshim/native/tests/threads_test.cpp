// The pool: every thread of a team runs, barriers hold, and callers from several threads take turns.
#include <atomic>
#include <thread>

#include "check.h"
#include "threads.h"

using namespace mlxcel::native;

TEST(all_threads_run) {
  for (int threads : {1, 2, 3, 7, 2, 1, 5}) {
    std::vector<int> seen(size_t(threads), 0);
    pool().run(threads, [&](Team& team, int thread) {
      seen[size_t(thread)]++;
      if (team.threads() != threads) seen[size_t(thread)] = 100;
    });
    for (int n : seen) CHECK_EQUAL(n, 1);
  }
}

TEST(barriers_hold) {
  // Plain memory, so that ThreadSanitizer sees a barrier that does not order.
  constexpr int kThreads = 4, kRounds = 500;
  std::vector<int> numbers(kThreads, 0);
  int between = 0;
  bool right = true;
  for (int step = 0; step < 3; step++)
    pool().run(kThreads, [&](Team& team, int thread) {
      for (int round = 0; round < kRounds; round++) {
        numbers[size_t(thread)]++;
        team.barrier([&] {
          for (int n : numbers) right = right && n == numbers[0];
          between++;
        });
        const int expected = numbers[size_t((thread + 1) % kThreads)];
        if (expected != numbers[size_t(thread)]) right = false;
        team.barrier([] {});
      }
    });
  CHECK(right);
  CHECK_EQUAL(numbers[0], 3 * kRounds);
  CHECK_EQUAL(between, 3 * kRounds);
}

TEST(callers_take_turns) {
  std::atomic<int> inside{0}, most{0}, steps{0};
  auto caller = [&](int threads) {
    for (int i = 0; i < 100; i++)
      pool().run(threads, [&](Team& team, int thread) {
        if (thread == 0 && inside.fetch_add(1) + 1 > most.load()) most = inside.load();
        team.barrier([] {});
        if (thread == 0) {
          inside--;
          steps++;
        }
      });
  };
  std::thread a(caller, 2), b(caller, 3), c(caller, 1);
  a.join();
  b.join();
  c.join();
  CHECK_EQUAL(most.load(), 1);
  CHECK_EQUAL(steps.load(), 300);
}

TEST(sleepers_wake) {
  for (int i = 0; i < 5; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // much longer than anybody spins
    std::atomic<int> ran{0};
    pool().run(3, [&](Team& team, int thread) {
      if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      team.barrier([] {});
      ran++;
    });
    CHECK_EQUAL(ran.load(), 3);
  }
}

TEST(defaults) { CHECK(default_threads() >= 1 && default_threads() <= int(std::thread::hardware_concurrency())); }
