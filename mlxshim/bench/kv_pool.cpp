// A double-buffered step's time and memory by the size of the pool that it writes to: they must not depend on it.
// usage: kv_pool [steps]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "../tests/pool.h"

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  for (int64_t rows : {1024, 8192, 65536}) {
    test::Pool pool(rows);
    auto result = pool.measure(steps);
    std::printf("pool of %5.0f MB: %6.0f us a step (best of %d: %.0f), %.2f MB over the pool\n",
                double(pool.bytes()) / 1e6, result.median_us, steps, result.best_us, double(result.extra_bytes) / 1e6);
  }
  return test::failures != 0;
}
