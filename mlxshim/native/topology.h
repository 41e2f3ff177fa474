// The processors that this process may use.
#pragma once

#include <vector>

namespace mlxcel::native {

struct Topology {
  // The logical processors of each physical core.
  std::vector<std::vector<int>> cores;
  // How many processors' time the process may take, for a container; no more than a large number otherwise.
  int quota = 1 << 20;
};

Topology read_topology();

// Binds the calling thread to core `number`, where there is one. A thread that cannot be bound runs anywhere.
void pin_thread(const Topology& topology, int number);

struct SystemMemory {
  long long total = 0, free = 0;  // bytes; 0: unknown
};
SystemMemory read_memory();

}  // namespace mlxcel::native
