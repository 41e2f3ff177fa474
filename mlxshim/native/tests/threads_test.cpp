// The pool: every part is done once, stages follow each other, and callers from several threads take turns.
#include "threads.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "check.h"

using namespace mlxcel::native;

namespace {

struct Stages : Job {
  std::vector<int> counts;  // parts of each
  std::function<void(int stage, int part, int thread)> on_part = [](int, int, int) {};
  std::function<void(int stage)> on_finish = [](int) {};

  explicit Stages(std::vector<int> counts) : counts(std::move(counts)) {}
  int stages() const override { return int(counts.size()); }
  int parts(int stage) const override { return counts[size_t(stage)]; }
  void run(int stage, int part, int thread) const override { on_part(stage, part, thread); }
  void finish(int stage, int) const override { on_finish(stage); }
};

void nap(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST(every_part_once) {
  for (int threads : {1, 2, 3, 7, 2, 1, 5}) {
    Stages job({3, 0, 1, kMostParts, 0, 0, 8, 0});
    // Plain memory, so that ThreadSanitizer sees it if stages are not ordered.
    std::vector<std::vector<int>> done;
    for (int n : job.counts) done.emplace_back(size_t(n), 0);
    std::vector<int> finished;
    bool in_order = true, right_thread = true;
    job.on_part = [&](int stage, int part, int thread) {
      done[size_t(stage)][size_t(part)]++;
      if (int(finished.size()) != stage) in_order = false;
      if (thread < 0 || thread >= threads) right_thread = false;
    };
    job.on_finish = [&](int stage) {
      for (int n : done[size_t(stage)])
        if (n != 1) in_order = false;
      finished.push_back(stage);
    };
    pool().run(threads, job);
    CHECK(in_order);
    CHECK(right_thread);
    CHECK(finished == std::vector<int>({0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(many_short_stages) {
  constexpr int kThreads = 4, kStages = 400;
  std::vector<int> numbers(kThreads, 0);
  bool right = true;
  Stages job(std::vector<int>(kStages, kThreads));
  job.on_part = [&](int, int part, int) { numbers[size_t(part)]++; };
  job.on_finish = [&](int) {
    for (int n : numbers) right = right && n == numbers[0];
  };
  for (int i = 0; i < 5; i++) pool().run(kThreads, job);
  CHECK(right);
  CHECK_EQUAL(numbers[0], 5 * kStages);
}

TEST(who_is_held_up_holds_up_a_part_only) {
  // The thread that does part 0 does not go on before all other parts are done.
  Stages job({6, 6});
  std::atomic<int> others{0};
  bool waited_in_vain = false;
  job.on_part = [&](int stage, int part, int) {
    if (part != 0) {
      others++;
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    while (others.load() < 5 * (stage + 1) && !waited_in_vain) {
      nap(1);
      waited_in_vain = std::chrono::steady_clock::now() - start > std::chrono::seconds(20);
    }
  };
  pool().run(2, job);
  CHECK(!waited_in_vain);
  CHECK_EQUAL(others.load(), 10);
}

TEST(callers_take_turns) {
  std::atomic<int> inside{0}, most{0}, steps{0};
  auto caller = [&](int threads) {
    Stages job({4, 0, 2});
    job.on_part = [&](int stage, int part, int) {
      if (stage == 0 && part == 0 && inside.fetch_add(1) + 1 > most.load()) most = inside.load();
    };
    job.on_finish = [&](int stage) {
      if (stage == 2) {
        inside--;
        steps++;
      }
    };
    for (int i = 0; i < 100; i++) pool().run(threads, job);
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
    nap(20);  // much longer than anybody spins
    std::vector<int> done(6, 0);
    Stages job({3, 3});
    job.on_part = [&](int stage, int part, int) {
      if (stage == 0 && part == 1) nap(5);
      done[size_t(3 * stage + part)]++;
    };
    pool().run(3, job);
    CHECK(done == std::vector<int>(6, 1));
  }
}

TEST(ranges_cover_all_once) {
  for (int threads : {1, 2, 3, 8})
    for (int64_t n : {0, 1, 2, 7, 31, 32, 33, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(n));
      parallel_for(threads, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) done[size_t(i)]++;
      });
      CHECK(std::all_of(done.begin(), done.end(), [](auto& times) { return times == 1; }));
    }
}

TEST(a_range_that_throws) {
  std::atomic<int> calls{0};
  bool caught = false;
  try {
    parallel_for(3, 100, [&](int64_t, int64_t) {
      calls++;
      throw std::bad_alloc();
    });
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  CHECK(caught);
  CHECK_EQUAL(calls.load(), 12);  // the other ranges are not left out
}

TEST(defaults) { CHECK(default_threads() >= 1 && default_threads() <= int(std::thread::hardware_concurrency())); }
