// Weights: parts of files and of memory, other resident types, and what is refused.
#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "abi.h"

using namespace test;

namespace {

// On Windows a plain string is not taken for UTF-8.
std::filesystem::path native(const std::string& path) { return std::u8string(path.begin(), path.end()); }

std::string temporary(const std::vector<char>& bytes) {
  static int number = 0;
  auto folder = std::filesystem::temp_directory_path().string();
  std::string path = folder + "/mlxshim-" + std::to_string(std::random_device()()) + std::to_string(number++) +
                     " gewichte \xc3\xa9\xe4\xb8\xad.bin";
  std::ofstream(native(path), std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  return path;
}

// What a weight [n] holds, read back by an embedding of one row per value.
std::vector<float> contents(Session& session, int64_t index, int64_t n) {
  Builder b;
  b.max_tokens = n;
  auto ids = b.input({I32, TOKENS, {n}}), w = b.weight(index);
  b.output(b.op(MLXSHIM_OP_EMBED, {ids, w}, {0, 0, 0}, {{F32, TOKENS, {n, 1}}}));
  std::vector<int32_t> all;
  for (int64_t i = 0; i < n; i++) all.push_back(int32_t(i));
  return run<float>(session.load(b), {n, 0, 1}, {all.data()}, n);
}

struct Weight {
  mlxshim_weight block;
  std::vector<int64_t> dims;
  std::vector<mlxshim_part> parts;

  Weight(int64_t dtype, int64_t resident, std::vector<int64_t> dims_, std::vector<mlxshim_part> parts_)
      : dims(std::move(dims_)), parts(std::move(parts_)) {
    block = {sizeof block,          "name",      4, dtype, resident, int64_t(dims.size()), dims.data(),
             int64_t(parts.size()), parts.data()};
  }
};

}  // namespace

TEST(parts_of_files_and_memory) {
  Session session;
  Random random(31);
  auto data = random.normals(1000);
  std::vector<char> bytes(13 + 4000);
  std::memcpy(bytes.data() + 13, data.data(), 4000);
  std::string path = temporary(bytes);
  int64_t file = 0, index = -1;
  OK(mlxshim_file_open(session.context, path.data(), int64_t(path.size()), &file));
  // Pieces out of order in the file, one empty, one cut within an element, one from memory.
  std::vector<mlxshim_part> parts{{sizeof(mlxshim_part), file, 13 + 2000, 402, nullptr, 0, 0, 0, 0},
                                  {sizeof(mlxshim_part), file, 13 + 2402, 1598, nullptr, 0, 0, 0, 0},
                                  {sizeof(mlxshim_part), file, 0, 0, nullptr, 0, 0, 0, 0},
                                  {sizeof(mlxshim_part), 0, 0, 2000, data.data(), 0, 0, 0, 0}};
  Weight w(F32, F32, {1000, 1}, parts);
  OK(mlxshim_weights_add(session.weights, &w.block, &index));
  OK(mlxshim_file_close(file));
  std::error_code held;  // Windows keeps what is open
  std::filesystem::remove(native(path), held);
  std::vector<float> want(data.begin() + 500, data.end());
  want.insert(want.end(), data.begin(), data.begin() + 500);
  CHECK(contents(session, index, 1000) == want);

  int64_t count = 0, length = 0, dims[MLXSHIM_MAX_DIMS];
  char name[10];
  mlxshim_weight_info info{sizeof info, 0, 0, 0};
  OK(mlxshim_weights_count(session.weights, &count));
  CHECK_EQUAL(count, 1);
  OK(mlxshim_weights_info(session.weights, 0, &info, dims, name, 10, &length));
  CHECK(std::string(name, size_t(length)) == "name");
  CHECK(info.dtype == F32 && info.ndim == 2 && info.bytes == 4000 && dims[0] == 1000 && dims[1] == 1);
}

TEST(resident_types) {
  // Values that every float type holds exactly, subnormal halves among them, over more than one piece of conversion.
  Session session;
  const int64_t n = 300000;
  std::vector<uint16_t> half, bfloat;
  std::vector<float> wide;
  for (int64_t i = 0; i < n; i++) {
    float value = float(i % 255 - 127) * (i % 2 ? 1.f : 0.0000152587890625f);  // 2^-16
    wide.push_back(value);
    uint32_t bits32 = std::bit_cast<uint32_t>(value);
    bfloat.push_back(uint16_t(bits32 >> 16));
  }
  for (float value : wide) half.push_back(test::half(value));
  auto same = [&](int64_t index, const char* what) {
    std::vector<double> want(wide.begin(), wide.end());
    CHECK_CLOSE(contents(session, index, n), want, 0, what);
  };
  same(session.add(MLXSHIM_DTYPE_F16, {n, 1}, half, F32), "f16 as f32");
  same(session.add(MLXSHIM_DTYPE_BF16, {n, 1}, bfloat, F32), "bf16 as f32");
  same(session.add(MLXSHIM_DTYPE_F16, {n, 1}, half), "f16");
  same(session.add(MLXSHIM_DTYPE_BF16, {n, 1}, bfloat), "bf16");
  same(session.add(F32, {n, 1}, wide, MLXSHIM_DTYPE_F16), "f32 as f16");
  same(session.add(F32, {n, 1}, wide, MLXSHIM_DTYPE_BF16), "f32 as bf16");
  same(session.add(MLXSHIM_DTYPE_F16, {n, 1}, half, MLXSHIM_DTYPE_BF16), "f16 as bf16");
  std::vector<double> very_wide(wide.begin(), wide.end());
  same(session.add(MLXSHIM_DTYPE_F64, {n, 1}, very_wide, F32), "f64 as f32");
}

TEST(no_second_copy) {
  // While a weight is read in, no other memory of its size is taken.
  Session session;
  mlxshim_memory_info info{sizeof info, 0, 0, 0, 0};
  std::vector<uint16_t> data(8 << 20);
  OK(mlxshim_memory_trim(session.context));
  OK(mlxshim_memory_reset_peak(session.context));
  OK(mlxshim_memory(session.context, &info));
  int64_t before = info.active;
  session.add(MLXSHIM_DTYPE_BF16, {8 << 20}, data, F32);
  OK(mlxshim_memory(session.context, &info));
  CHECK(info.active - before <= (32 << 20) + 65536);
  CHECK(info.peak - before <= (32 << 20) + 65536);
}

TEST(refused_weights) {
  Session session;
  const int64_t c = session.context;
  std::vector<float> data(10);
  std::string path = temporary(std::vector<char>(100));
  int64_t file = 0, index = 0;
  OK(mlxshim_file_open(c, path.data(), int64_t(path.size()), &file));
  auto part = [&](int64_t f, int64_t offset, int64_t bytes) {
    return mlxshim_part{sizeof(mlxshim_part), f, offset, bytes, data.data(), 0, 0, 0, 0};
  };
  auto attempt = [&](Weight w) { return mlxshim_weights_add(session.weights, &w.block, &index); };
  OK(attempt({F32, F32, {10}, {part(0, 0, 40)}}));
  OK(attempt({F32, F32, {10}, {part(file, 60, 40)}}));
  // Past the end of the file.
  FAILS(MLXSHIM_ERR_IO, attempt({F32, F32, {10}, {part(file, 61, 40)}}));
  CHECK(last_error().find(path) != std::string::npos);
  FAILS(MLXSHIM_ERR_IO, attempt({F32, F32, {int64_t(1) << 30, 200}, {part(file, 0, int64_t(800) << 30)}}));
  for (int64_t offset : {int64_t(-1), int64_t(101), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {part(file, offset, 40)}}));
  // Parts that are too few, too many, negative or huge.
  for (int64_t bytes : {int64_t(39), int64_t(41), int64_t(-40), int64_t(0), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {part(0, 0, bytes)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {part(0, 0, 40), part(0, 0, 40)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {part(-4, 0, 40)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {part(c, 0, 40)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {{sizeof(mlxshim_part), 0, 0, 40, nullptr, 0, 0, 0, 0}}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {{3, 0, 0, 40, data.data()}}}));
  // Types and shapes.
  for (int64_t dtype : {int64_t(0), int64_t(-1), int64_t(14), INT64_MAX}) {
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt({dtype, dtype, {10}, {part(0, 0, 40)}}));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, dtype, {10}, {part(0, 0, 40)}}));
  }
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({I32, F32, {10}, {part(0, 0, 40)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, I32, {10}, {part(0, 0, 40)}}));
  for (int64_t dim : {int64_t(0), int64_t(-1), INT64_MAX, INT64_MIN, int64_t(1) << 31})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10, dim}, {part(0, 0, 40)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {1 << 30, 1 << 30, 1 << 30}, {part(0, 0, 0)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {}, {part(0, 0, 4)}}));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {1, 1, 1, 1, 1, 1, 1, 1, 10}, {part(0, 0, 40)}}));
  Weight w(F32, F32, {10}, {part(0, 0, 40)});
  for (int64_t n : {int64_t(-1), int64_t(0), INT64_MAX}) {
    Weight v = w;
    v.block.part_count = n;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(session.weights, &v.block, &index));
    v = w;
    v.block.ndim = n;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(session.weights, &v.block, &index));
    if (n == 0) continue;
    v = w;
    v.block.name_length = n;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(session.weights, &v.block, &index));
  }
  w.block.dims = nullptr;
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(session.weights, &w.block, &index));
  w = Weight(F32, F32, {10}, {});
  w.block.part_count = 1;
  w.block.parts = nullptr;
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(session.weights, &w.block, &index));
  // What was refused left nothing behind.
  OK(mlxshim_weights_count(session.weights, &index));
  CHECK_EQUAL(index, 2);
  mlxshim_weight_info info{sizeof info, 0, 0, 0};
  for (int64_t i : {int64_t(-1), int64_t(2), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_info(session.weights, i, &info, nullptr, nullptr, 0, nullptr));
  std::error_code held;  // Windows keeps what is open
  std::filesystem::remove(native(path), held);
}
