// How fast the matrix products of SmolLM2-135M go: 30 layers of 4 bits, a head of 8, random weights; no norms,
// attention or sampling. Beside it, how fast the same threads can read memory.
// Usage: matmul_bench [level ...] [--rows 1,8,512]
//
// On a machine that others use too, the time that passes says little. So "busy" is printed beside it: by the time that
// the busiest thread had a processor and computed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/matmul.h"
#include "cpu/matmul_memory.h"
#include "mlxshim.h"

#ifndef _WIN32
#include <time.h>
#endif

using namespace mlxcel::native;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds that this thread had a processor; on Windows, where that is not counted finely enough, seconds.
double busy_seconds() {
#ifdef _WIN32
  return seconds();
#else
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
#endif
}

// Threads that wait for each other by spinning; a real step's pool is no faster.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait() {
    int generation = generation_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_ = 0;
      generation_++;
    } else {
      // On a machine that is busy with other work the one that is waited for may not be running.
      for (int i = 0; generation_.load(std::memory_order_acquire) == generation; i++)
        if (i > 20000) std::this_thread::yield();
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0}, generation_{0};
};

// Runs work(thread) on all threads and returns the seconds.
double timed(int threads, const std::function<void(int)>& work) {
  double begin = seconds();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; t++) others.emplace_back(work, t);
  work(0);
  for (std::thread& t : others) t.join();
  return seconds() - begin;
}

std::unique_ptr<Matrix> random_matrix(Level level, std::mt19937& random, int64_t rows, int64_t columns, int64_t bits) {
  std::vector<uint32_t> words(size_t(rows * columns * bits / 32));
  for (uint32_t& w : words) w = random();
  std::vector<uint16_t> scales(size_t(rows * columns / 32)), biases(scales.size());
  for (size_t i = 0; i < scales.size(); i++)
    scales[i] = uint16_t(0x2000 + random() % 1024), biases[i] = uint16_t(0xa000 + random() % 1024);
  MatrixSource s;
  s.rows = rows, s.columns = columns;
  s.mode = MLXSHIM_QUANT_AFFINE, s.bits = bits, s.group = 32;
  s.weight = words.data(), s.weight_dtype = MLXSHIM_DTYPE_U32;
  s.scales = scales.data(), s.biases = biases.data(), s.scale_dtype = MLXSHIM_DTYPE_F16;
  return pack(level, s);
}

struct Model {
  std::vector<std::unique_ptr<Matrix>> layers;
  std::unique_ptr<Matrix> head;
  size_t bytes = 0;

  explicit Model(Level level) {
    std::mt19937 random(1);
    for (int i = 0; i < 30; i++)
      for (auto [n, k] : {std::pair(960, 576), std::pair(576, 576), std::pair(3072, 576), std::pair(576, 1536)})
        layers.push_back(random_matrix(level, random, n, k, 4));
    head = random_matrix(level, random, 49152, 576, 8);
    bytes = head->bytes();
    for (auto& m : layers) bytes += m->bytes();
  }
};

// One product, its rows or columns divided among the threads.
class Product {
 public:
  Product(int threads, int64_t tokens) : threads_(threads), tokens_(tokens), barrier_(threads), busy_(size_t(threads)) {
    x_.resize(size_t(tokens * 1536));
    for (size_t i = 0; i < x_.size(); i++) x_[i] = float(int(i * 2654435761u >> 16 & 0xffff) - 32768) / 32768;
    prepared_.resize(size_t(tokens * 1536 * 4 + 64));
    at_ = prepared_.data() + (64 - reinterpret_cast<uintptr_t>(prepared_.data()) % 64);
    y_.resize(size_t(std::max<int64_t>(tokens * 3072, std::min<int64_t>(tokens, 8) * 49152)));
  }

  void run(const Matrix& m, int64_t tokens, int thread) {
    auto part = [&](int64_t n, int64_t block, int t) {
      return std::min(n, (n * t / threads_ + block - 1) / block * block);
    };
    int64_t first = part(tokens, 1, thread), last = part(tokens, 1, thread + 1);
    double begin = busy_seconds();
    m.prepare(x_.data() + first * m.columns, m.columns, last - first, at_ + size_t(first) * m.prepared_bytes());
    busy_[size_t(thread)] += busy_seconds() - begin;
    barrier_.wait();
    begin = busy_seconds();
    m.multiply(at_, tokens, part(m.rows, m.row_block(), thread), part(m.rows, m.row_block(), thread + 1), y_.data(),
               m.rows);
    busy_[size_t(thread)] += busy_seconds() - begin;
    barrier_.wait();
  }
  // A step: the head sees all tokens of a batch, or the last one of a long prompt.
  void step(const Model& model, int thread) {
    for (auto& m : model.layers) run(*m, tokens_, thread);
    run(*model.head, tokens_ <= 8 ? tokens_ : 1, thread);
  }
  // What the busiest thread computed since the last call.
  double take_busy() {
    double most = *std::max_element(busy_.begin(), busy_.end());
    std::fill(busy_.begin(), busy_.end(), 0);
    return most;
  }

 private:
  const int threads_;
  const int64_t tokens_;
  Barrier barrier_;
  std::vector<double> busy_;
  std::vector<float> x_, y_;
  std::vector<char> prepared_;
  char* at_;
};

struct Rates {
  double wall = 0, busy = 0;  // the best of several, a second
  void add(double per_second, double busy_per_second) {
    wall = std::max(wall, per_second), busy = std::max(busy, busy_per_second);
  }
};

// GB/s of reading as much memory as a step does.
Rates read_bandwidth(int threads, size_t bytes) {
  MatrixMemory memory(bytes);
  std::memset(memory.data(), 1, bytes);
  std::atomic<uint64_t> sink{0};
  Rates best;
  for (int i = 0; i < 15; i++) {
    std::vector<double> busy(size_t(threads), 0);
    double s = timed(threads, [&](int t) {
      auto at = reinterpret_cast<const uint64_t*>(memory.data());
      size_t n = bytes / 8, begin = n * size_t(t) / size_t(threads) / 32 * 32;
      size_t end = n * size_t(t + 1) / size_t(threads) / 32 * 32;
      uint64_t sum[4] = {};
      double start = busy_seconds();
      for (size_t j = begin; j < end; j += 32)  // one element of every line will do
        for (size_t k = 0; k < 4; k++) sum[k] += at[j + k * 8];
      busy[size_t(t)] = busy_seconds() - start;
      sink += sum[0] + sum[1] + sum[2] + sum[3];
    });
    best.add(double(bytes) / s / 1e9, double(bytes) / *std::max_element(busy.begin(), busy.end()) / 1e9);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Level> wanted;
  std::vector<int64_t> rows = {1, 8, 512};
  for (int i = 1; i < argc; i++) {
    if (std::string(argv[i]) == "--rows" && i + 1 < argc) {
      rows.clear();
      for (char* at = argv[++i]; *at; at += *at == ',') rows.push_back(std::strtol(at, &at, 10));
    } else {
      for (Level l : levels())
        if (std::string(argv[i]) == level_name(l)) wanted.push_back(l);
    }
  }
  if (wanted.empty()) wanted.assign(levels().begin() + (levels().size() > 1), levels().end());
  for (Level level : wanted) {
    double begin = seconds();
    Model model(level);
    std::printf("%s: %.1f MB, made and packed in %.0f ms\n", level_name(level), double(model.bytes) / 1e6,
                (seconds() - begin) * 1e3);
    for (int threads : {1, 2}) {
      Rates memory = read_bandwidth(threads, model.bytes);
      std::printf("  %d threads: memory read %.1f GB/s, busy %.1f\n", threads, memory.wall, memory.busy);
      for (int64_t tokens : rows) {
        Product product(threads, tokens);
        Rates steps;
        for (int i = 0; i < (tokens > 8 ? 4 : 30); i++) {
          double wall = timed(threads, [&](int t) { product.step(model, t); });
          steps.add(1 / wall, 1 / product.take_busy());
        }
        double gb = double(model.bytes) / 1e9, n = double(tokens);
        double macs = 106168320.0 * n + 28311552.0 * (tokens <= 8 ? n : 1);
        std::printf(
            "    %4d rows: %6.1f steps/s, busy %6.1f: %8.1f tok/s, %5.1f GB/s (%3.0f %% of memory), %6.1f GMAC/s\n",
            int(tokens), steps.wall, steps.busy, n * steps.busy, gb * steps.busy, 100 * gb * steps.busy / memory.busy,
            macs * steps.busy / 1e9);
        std::fflush(stdout);
      }
    }
  }
}
