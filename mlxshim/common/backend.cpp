#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include "backend.h"
#include "convert.h"
#include "dtype.h"
#include "status.h"

namespace mlxcel {

namespace {

uint32_t scramble(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  return x ^ x >> 16;
}

// n bytes of a weight that is made up, from byte `at` on.
void make_up(char* to, int64_t at, int64_t n, int64_t dtype, uint32_t seed) {
  const int64_t size = dtype_size(dtype);
  for (int64_t i = 0; i < n / size; i++) {
    const uint32_t bits = scramble(uint32_t(at / size + i) ^ scramble(seed));
    if (is_float(dtype)) {
      const float value = (float(bits >> 8) / float(1 << 24) - 0.5f) / 16;
      convert_floats(&value, MLXSHIM_DTYPE_F32, to + i * size, dtype, 1);
    } else {
      std::memcpy(to + i * size, &bits, size_t(std::min<int64_t>(size, 4)));
    }
  }
}

}  // namespace

void WeightSource::read(void* to, int64_t at, int64_t n, FileBuffer& buffer) const {
  char* out = static_cast<char*>(to);
  if (made_up()) return make_up(out, at, n, dtype_, seed());
  for (const Part& part : parts_) {
    if (n == 0) return;
    if (at >= part.bytes) {
      at -= part.bytes;
      continue;
    }
    const int64_t take = std::min(n, part.bytes - at);
    if (!part.file)
      std::memcpy(out, static_cast<const char*>(part.data) + at, size_t(take));
    else if (part.layout.plain())
      part.file->read(out, size_t(take), part.offset + at);
    else
      read_blocks(*part.file, part.offset, part.layout, dtype_, out, at, take, buffer);
    out += take;
    n -= take;
    at = 0;
  }
  if (n != 0) fail(MLXSHIM_ERR_INTERNAL, "a weight was read past its end");
}

void WeightSource::read(void* to, int64_t at, int64_t n) const {
  FileBuffer buffer;
  read(to, at, n, buffer);
}

void WeightSource::read_fast(void* to, int64_t at, int64_t n) const {
  constexpr int64_t kWorthAThread = int64_t(2) << 20, kMostThreads = 8;
  const int64_t threads = std::min({n / kWorthAThread, int64_t(std::thread::hardware_concurrency()), kMostThreads});
  if (threads < 2) return read(to, at, n);
  const int64_t share = (n / threads + 4095) / 4096 * 4096;
  std::vector<std::future<void>> others;
  for (int64_t begin = share; begin < n; begin += share)
    others.push_back(std::async(std::launch::async, [=, this] {
      read(static_cast<char*>(to) + begin, at + begin, std::min(share, n - begin));
    }));
  std::exception_ptr failure;
  try {
    read(to, at, std::min(share, n));
  } catch (...) {
    failure = std::current_exception();
  }
  for (auto& other : others) try {
      other.get();
    } catch (...) {
      failure = std::current_exception();
    }
  if (failure) std::rethrow_exception(failure);
}

bool WeightSource::borrowed() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return !p.file && !p.made_up; });
}

std::string LoadedProgram::describe() const {
  std::string out;
  for (size_t i = 0; i < program.ops.size(); i++) {
    const Op& op = program.ops[i];
    out += text(i, " ", op.facts->name);
    for (int k = 0; k < op.facts->outputs; k++) out += " " + program.types[size_t(op.first_output + k)].print();
    out += "\n";
  }
  return out;
}

}  // namespace mlxcel
