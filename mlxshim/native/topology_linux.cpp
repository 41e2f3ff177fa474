#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "topology.h"

namespace mlxcel::native {

namespace {

long number_in(const std::string& path, long otherwise) {
  std::ifstream file(path);
  long value;
  return file >> value ? value : otherwise;
}

// The quota of one cgroup of either version, in processors; `most` where it has none.
int quota_of(const std::string& folder, int most) {
  if (std::ifstream file(folder + "/cpu.max"); file) {
    double quota, period;
    if (file >> quota >> period && quota > 0 && period > 0) return std::max(1, std::min(most, int(quota / period)));
    return most;
  }
  const long quota = number_in(folder + "/cpu.cfs_quota_us", -1), period = number_in(folder + "/cpu.cfs_period_us", 0);
  return quota > 0 && period > 0 ? std::max(1, std::min(most, int(quota / period))) : most;
}

// The smallest quota of the process's cgroup and of those above it.
int read_quota(int most) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string root;
    if (controllers.empty())
      root = "/sys/fs/cgroup";
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      root = "/sys/fs/cgroup/" + controllers;
    else
      continue;
    std::string path = line.substr(second + 1);
    for (;;) {
      most = quota_of(root + (path == "/" ? "" : path), most);
      const size_t slash = path.rfind('/');
      if (path.size() <= 1 || slash == std::string::npos) break;
      path.resize(slash);
    }
    most = quota_of(root, most);
  }
  return most;
}

}  // namespace

Topology read_topology() {
  Topology topology;
  constexpr int kMost = 8192;
  cpu_set_t* allowed = CPU_ALLOC(kMost);
  const size_t size = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(size, allowed);
  std::map<std::pair<long, long>, std::vector<int>> cores;  // by package and core
  if (sched_getaffinity(0, size, allowed) == 0)
    for (int cpu = 0; cpu < kMost; cpu++) {
      if (!CPU_ISSET_S(cpu, size, allowed)) continue;
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      cores[{number_in(folder + "physical_package_id", 0), number_in(folder + "core_id", cpu)}].push_back(cpu);
    }
  CPU_FREE(allowed);
  for (auto& [key, cpus] : cores) topology.cores.push_back(std::move(cpus));
  if (topology.cores.empty()) topology.cores.push_back({});
  topology.quota = read_quota(topology.quota);
  return topology;
}

void pin_thread(const Topology& topology, int number) {
  if (number >= int(topology.cores.size())) return;
  constexpr int kMost = 8192;
  cpu_set_t* set = CPU_ALLOC(kMost);
  const size_t size = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(size, set);
  for (int cpu : topology.cores[size_t(number)]) CPU_SET_S(cpu, size, set);
  if (CPU_COUNT_S(size, set) > 0) pthread_setaffinity_np(pthread_self(), size, set);
  CPU_FREE(set);
}

SystemMemory read_memory() {
  SystemMemory memory;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    long long kilobytes;
    if (!(words >> name >> kilobytes)) continue;
    if (name == "MemTotal:") memory.total = kilobytes * 1024;
    if (name == "MemAvailable:") memory.free = kilobytes * 1024;
  }
  return memory;
}

}  // namespace mlxcel::native
