// The tests' own check macro: a failed check prints where and what, and the test goes on.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace test {

inline int failures = 0;
inline int checks = 0;

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

inline void report(bool ok, const char* file, int line, const std::string& what) {
  checks++;
  if (ok) return;
  if (++failures < 50) std::printf("%s:%d: %s\n", file, line, what.c_str());
}

inline int run_all(int argc, char** argv) {
  for (const Case& c : cases()) {
    if (argc > 1 && std::string(c.name).find(argv[1]) == std::string::npos) continue;
    int before = failures;
    c.run();
    std::printf("%-40s %s\n", c.name, failures == before ? "ok" : "FAILED");
    std::fflush(stdout);
  }
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace test

#define TEST(name)                                    \
  static void name();                                 \
  static test::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition) test::report((condition), __FILE__, __LINE__, #condition)
#define CHECK_EQUAL(a, b)                                                                      \
  do {                                                                                         \
    auto left_ = (a);                                                                          \
    auto right_ = (b);                                                                         \
    test::report(left_ == right_, __FILE__, __LINE__,                                          \
                 #a " is " + std::to_string(left_) + ", " #b " is " + std::to_string(right_)); \
  } while (false)
#define CHECK_NEAR(a, b, tolerance)                                                           \
  do {                                                                                        \
    double left_ = (a), right_ = (b);                                                         \
    test::report(std::fabs(left_ - right_) <= (tolerance), __FILE__, __LINE__,                \
                 #a " is " + std::to_string(left_) + ", not near " + std::to_string(right_)); \
  } while (false)
