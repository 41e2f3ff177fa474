// Fuzz target: any words at all are a program or an error. Built with libFuzzer where the compiler is clang, else with
// fuzz_main.cpp.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "program.h"
#include "status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlxcel;
  std::vector<int64_t> words(size / 8);
  if (!words.empty()) std::memcpy(words.data(), data, words.size() * 8);
  // Weights of a few types, as a set would have them.
  std::vector<Type> weights;
  for (int i = 0; i < 40; i++) {
    Type t;
    t.dtype = i % 3 == 0 ? MLXSHIM_DTYPE_U32 : MLXSHIM_DTYPE_F32;
    t.ndim = 1 + i % 3;
    for (size_t d = 0; d < size_t(t.ndim); d++) t.dims[d] = 8 << (i + int(d)) % 4;
    weights.push_back(t);
  }
  StateShape state{MLXSHIM_DTYPE_F32, 2, 64, {{2, 16, 16, 0}, {2, 16, 16, 3}}};
  try {
    Program program = decode_program(words);
    check_program(program, weights, &state);
  } catch (const Status& e) {
    if (e.code != MLXSHIM_ERR_PROGRAM && e.code != MLXSHIM_ERR_UNSUPPORTED) std::abort();
  }
  return 0;
}
