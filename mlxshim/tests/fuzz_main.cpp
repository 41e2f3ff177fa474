// A plain driver for fuzz targets, for compilers without libFuzzer: runs the corpus, then mutations of it.
// usage: target SECONDS FOLDER
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 3) return std::printf("usage: %s SECONDS FOLDER\n", argv[0]), 2;
  std::vector<std::vector<uint8_t>> corpus;
  for (auto& entry : std::filesystem::directory_iterator(argv[2])) {
    std::ifstream in(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) return std::printf("no corpus in %s\n", argv[2]), 1;

  std::mt19937_64 random(1);
  auto below = [&](size_t n) { return size_t(random() % n); };
  const int64_t values[] = {0, 1, -1, 2, 3, 8, 64, INT32_MAX, INT64_MAX, INT64_MIN, int64_t(1) << 32};
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  size_t runs = 0;
  for (; std::chrono::steady_clock::now() < until; runs++) {
    auto data = corpus[below(corpus.size())];
    for (size_t n = 1 + below(4); n > 0 && data.size() >= 16; n--) {
      size_t words = data.size() / 8, at = below(words) * 8;
      int64_t word;
      std::memcpy(&word, &data[at], 8);
      switch (below(6)) {
        case 0: word ^= int64_t(1) << below(64); break;
        case 1: word = int64_t(uint64_t(word) + below(9) - 4); break;
        case 2: word = values[below(std::size(values))]; break;
        case 3: std::memcpy(&word, &data[below(words) * 8], 8); break;
        case 4: data.resize(at + 8); break;
        case 5: data.insert(data.begin() + int64_t(at), 8, uint8_t(below(3))); break;
      }
      std::memcpy(&data[at], &word, 8);
    }
    LLVMFuzzerTestOneInput(data.data(), data.size());
  }
  std::printf("%zu inputs of the corpus, %zu mutations\n", corpus.size(), runs);
  return 0;
}
