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

// Functions, not macros, do the work: the sanitizers make much code of every line that is expanded hundreds of times.
inline void check(bool ok, const char* file, int line, const char* what) {
  checks++;
  if (!ok) checks--, report(false, file, line, what);
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* file, int line, const char* what) {
  if (a == b)
    check(true, file, line, what);
  else
    report(false, file, line, std::string(what) + ": " + std::to_string(a) + " and " + std::to_string(b));
}

inline void check_near(double a, double b, double tolerance, const char* file, int line, const char* what) {
  if (std::fabs(a - b) <= tolerance)
    check(true, file, line, what);
  else
    report(false, file, line, std::string(what) + ": " + std::to_string(a) + " and " + std::to_string(b));
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

#define CHECK(condition) test::check((condition), __FILE__, __LINE__, #condition)
#define CHECK_EQUAL(a, b) test::check_equal((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_NEAR(a, b, tolerance) test::check_near((a), (b), (tolerance), __FILE__, __LINE__, #a " near " #b)
