#define NOMINMAX
#include <windows.h>

#include "topology.h"

namespace mlxcel::native {

// Processors past the first group of 64 are not used: a process has one group unless it asks for more.
Topology read_topology() {
  Topology topology;
  DWORD_PTR allowed = 0, all = 0;
  DWORD bytes = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &allowed, &all)) allowed = 1;
  GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &bytes);
  std::vector<char> buffer(bytes);
  auto* first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(buffer.data());
  if (bytes > 0 && GetLogicalProcessorInformationEx(RelationProcessorCore, first, &bytes))
    for (DWORD at = 0; at < bytes;) {
      auto* core = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(buffer.data() + at);
      at += core->Size;
      const GROUP_AFFINITY& mask = core->Processor.GroupMask[0];
      std::vector<int> cpus;
      for (int cpu = 0; mask.Group == 0 && cpu < int(8 * sizeof(KAFFINITY)); cpu++)
        if (mask.Mask & allowed & KAFFINITY(1) << cpu) cpus.push_back(cpu);
      if (!cpus.empty()) topology.cores.push_back(std::move(cpus));
    }
  if (topology.cores.empty()) topology.cores.push_back({});
  return topology;
}

void pin_thread(const Topology& topology, int number) {
  if (number >= int(topology.cores.size())) return;
  DWORD_PTR mask = 0;
  for (int cpu : topology.cores[size_t(number)]) mask |= DWORD_PTR(1) << cpu;
  if (mask != 0) SetThreadAffinityMask(GetCurrentThread(), mask);
}

SystemMemory read_memory() {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  if (!GlobalMemoryStatusEx(&status)) return {};
  return {(long long)(status.ullTotalPhys), (long long)(status.ullAvailPhys)};
}

}  // namespace mlxcel::native
