// Writes the fuzzer's corpus: the small model's program, and one program an op out of it. usage: write_corpus FOLDER
#include <fstream>

#include "small_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::printf("usage: %s FOLDER\n", argv[0]), 2;
  auto write = [&](const std::string& name, const std::vector<int64_t>& words) {
    std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()), std::streamsize(words.size() * 8));
  };
  auto words = test::SmallModel(nullptr).builder.words();
  write("small-model", words);
  words.resize(words.size() / 2);
  write("half-a-model", words);
  test::Builder b;
  auto x = b.input({test::F32, test::TOKENS, {1, 8}});
  b.output(b.op(MLXSHIM_OP_ADD, {x, x}, {}, {{test::F32, test::TOKENS, {1, 8}}}));
  write("add", b.words());
}
