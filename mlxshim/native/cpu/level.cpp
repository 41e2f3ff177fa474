// Which instruction sets this processor and its system have.
#include <cstdlib>
#include <string>
#include <vector>

#include "../../common/status.h"
#include "matmul.h"

#if defined(__x86_64__) || defined(_M_X64)
#define MLXCEL_X86 1
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace mlxcel::native {

namespace {

#ifdef MLXCEL_X86

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// What cpuid says for a leaf; zeros where the processor has no such leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
#ifdef _MSC_VER
  int r[4];
  __cpuid(r, 0);
  if (uint32_t(r[0]) < leaf) return {};
  __cpuidex(r, int(leaf), int(subleaf));
  return {uint32_t(r[0]), uint32_t(r[1]), uint32_t(r[2]), uint32_t(r[3])};
#else
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
#endif
}

// The register sets that the system saves when it switches threads.
uint64_t saved_state() {
#ifdef _MSC_VER
  return _xgetbv(0);
#else
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
#endif
}

constexpr bool has(uint64_t bits, uint64_t wanted) { return (bits & wanted) == wanted; }
constexpr uint32_t bit(int n) { return uint32_t(1) << n; }

std::vector<Level> detect() {
  std::vector<Level> found = {Level::kPortable};
  Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = seven.a >= 1 ? cpuid(7, 1) : Registers{};
  constexpr uint32_t kFma = bit(12), kOsxsave = bit(27), kAvx = bit(28), kF16c = bit(29);
  if (!has(one.c, kFma | kOsxsave | kAvx | kF16c)) return found;
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6;  // xmm and the upper halves; also mask registers and both zmm sets
  uint64_t saved = saved_state();
  constexpr uint32_t kAvx2 = bit(5);
  if (!has(saved, kYmm) || !has(seven.b, kAvx2)) return found;
  found.push_back(Level::kAvx2);
  constexpr uint32_t kAvxVnni = bit(4);  // leaf 7.1, eax
  if (has(seven_one.a, kAvxVnni)) found.push_back(Level::kAvxVnni);
  constexpr uint32_t kAvx512 = bit(16) | bit(17) | bit(30) | bit(31), kAvx512Vnni = bit(11);  // F, DQ, BW, VL
  if (has(saved, kZmm) && has(seven.b, kAvx512) && has(seven.c, kAvx512Vnni)) found.push_back(Level::kAvx512);
  return found;
}

#else

std::vector<Level> detect() { return {Level::kPortable}; }

#endif

constexpr Level kAll[] = {Level::kPortable, Level::kAvx2, Level::kAvxVnni, Level::kAvx512};

template <class Levels>
std::string names(const Levels& levels) {
  std::string all;
  for (Level l : levels) all += (all.empty() ? "" : ", ") + std::string(level_name(l));
  return all;
}

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::kPortable: return "portable";
    case Level::kAvx2: return "avx2";
    case Level::kAvxVnni: return "avxvnni";
    case Level::kAvx512: return "avx512";
  }
  return "?";
}

std::span<const Level> levels() {
  static const std::vector<Level> found = detect();
  return found;
}

Level level() {
  const char* wanted = std::getenv("MLXCEL_CPU");
  if (!wanted || !*wanted) return levels().back();
  for (Level l : levels())
    if (std::string(wanted) == level_name(l)) return l;
  for (Level l : kAll)
    require(std::string(wanted) != level_name(l), "MLXCEL_CPU asks for ", wanted,
            ", which this processor lacks: it has ", names(levels()));
  fail(MLXSHIM_ERR_ARGUMENT, "MLXCEL_CPU is \"", wanted, "\", which is no instruction set: choose one of ",
       names(kAll));
}

}  // namespace mlxcel::native
