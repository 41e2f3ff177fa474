// Weights: parts of files and of memory, other resident types, and what is refused.
#include <climits>
#include <cmath>
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

// Blocks of GGUF, in order and with heads whose halves are interleaved, by the definition of their formats.
TEST(blocks_of_files) {
  struct Format {
    int64_t blocks, bytes, bits;
    double low;  // bias / scale, 0: stored
  };
  Random random(32);
  for (const Format& f : {Format{MLXSHIM_BLOCKS_Q4_0, 18, 4, -8}, Format{MLXSHIM_BLOCKS_Q4_1, 20, 4, 0},
                          Format{MLXSHIM_BLOCKS_Q8_0, 34, 8, -128}})
    for (int64_t head_rows : {0, 6})
      for (int64_t scale_type : {int64_t(MLXSHIM_DTYPE_F16), int64_t(F32)}) {
        // More than is read at once, in two parts of which the second begins within the file's first.
        Session session;
        const int64_t rows = 786, groups = 17, columns = groups * 32, row_bytes = groups * f.bytes;
        std::vector<char> file(size_t(7 + rows * row_bytes));
        for (char& byte : file) byte = char(random.word());
        auto half = [&](int64_t at) {
          uint16_t bits;
          std::memcpy(&bits, file.data() + at, 2);
          return double(std::bit_cast<_Float16>(bits));
        };
        for (int64_t b = 0; b < rows * groups; b++) {
          for (int64_t at : {int64_t(0), int64_t(2)}) {  // d, and m of Q4_1
            if (at == 2 && f.low != 0) continue;
            // Three bits and an exponent, so that all that is computed is exact in f16 too; and the least of all, and zero.
            const float sign = random.below(2) ? 1 : -1, scale = std::ldexp(float(4 + random.below(4)), int(b % 13) - 9);
            const _Float16 value = _Float16(b % 9 ? sign * scale : b % 2 ? 3e-7f : -0.f);
            std::memcpy(file.data() + 7 + b * f.bytes + at, &value, 2);
          }
        }
        std::vector<double> want;
        for (int64_t r = 0; r < rows; r++) {
          int64_t stored = r;
          if (head_rows) {
            const int64_t k = r % head_rows, h = head_rows / 2;
            stored = r - k + (k < h ? 2 * k : 2 * (k - h) + 1);
          }
          for (int64_t c = 0; c < columns; c++) {
            const int64_t block = 7 + (stored * groups + c / 32) * f.bytes, i = c % 32;
            const auto* q = reinterpret_cast<const uint8_t*>(file.data() + block + f.bytes - f.bits * 4);
            const double d = half(block);
            if (f.bits == 8)
              want.push_back(d * int8_t(q[i]));
            else
              want.push_back(d * (i < 16 ? q[i] & 15 : q[i - 16] >> 4) + (f.low != 0 ? d * f.low : half(block + 2)));
          }
        }
        const std::string path = temporary(file);
        int64_t handle = 0, index[3];
        OK(mlxshim_file_open(session.context, path.data(), int64_t(path.size()), &handle));
        for (int64_t field = 0; field < 3; field++) {
          const int64_t unit = field ? (scale_type == F32 ? 4 : 2) : f.bits * 4;
          const int64_t width = field ? groups : columns * f.bits / 32;
          const int64_t first = 120, dtype = field ? scale_type : int64_t(MLXSHIM_DTYPE_U32);
          auto part = [&](int64_t row, int64_t n) {
            return mlxshim_part{sizeof(mlxshim_part), handle, 7 + row * row_bytes, n * groups * unit, nullptr, f.blocks,
                                field, head_rows, row_bytes};
          };
          Weight w(dtype, dtype, {rows, width}, {part(0, first), part(first, rows - first)});
          OK(mlxshim_weights_add(session.weights, &w.block, &index[field]));
        }
        OK(mlxshim_file_close(handle));
        if (head_rows == 0)  // else when the program is loaded
          OK(mlxshim_weights_pack(session.weights, index[0], index[1], index[2], MLXSHIM_QUANT_AFFINE, f.bits, 32));
        Builder b;
        b.max_tokens = rows;
        auto ids = b.input({I32, TOKENS, {rows}});
        auto w = b.weight(index[0]), scales = b.weight(index[1]), biases = b.weight(index[2]);
        b.output(b.op(MLXSHIM_OP_EMBED, {ids, w, scales, biases}, {MLXSHIM_QUANT_AFFINE, f.bits, 32},
                      {{F32, TOKENS, {rows, columns}}}));
        std::vector<int32_t> all;
        for (int64_t r = 0; r < rows; r++) all.push_back(int32_t(r));
        CHECK_CLOSE(run<float>(session.load(b), {rows, 0, 1}, {all.data()}, rows * columns), want, 0, "blocks");
        std::remove(path.c_str());
      }
}

TEST(refused_blocks) {
  Session session;
  const std::string path = temporary(std::vector<char>(4 * 18 * 3));
  int64_t file = 0, index = 0;
  OK(mlxshim_file_open(session.context, path.data(), int64_t(path.size()), &file));
  auto attempt = [&](int64_t dtype, std::vector<int64_t> dims, mlxshim_part part) {
    Weight w(dtype, dtype, std::move(dims), {part});
    return mlxshim_weights_add(session.weights, &w.block, &index);
  };
  auto part = [&](int64_t bytes, int64_t blocks, int64_t field, int64_t head_rows = 0, int64_t row_bytes = 0) {
    return mlxshim_part{sizeof(mlxshim_part), file, 0, bytes, nullptr, blocks, field, head_rows, row_bytes};
  };
  const int64_t U32 = MLXSHIM_DTYPE_U32, F16 = MLXSHIM_DTYPE_F16, Q4_0 = MLXSHIM_BLOCKS_Q4_0;
  OK(attempt(U32, {4, 12}, part(192, Q4_0, 0)));
  OK(attempt(F16, {4, 3}, part(24, Q4_0, 1)));
  OK(attempt(F16, {4, 3}, part(24, Q4_0, 2, 2, 54)));
  for (int64_t blocks : {int64_t(-1), int64_t(4), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {4, 12}, part(192, blocks, 0)));
  for (int64_t field : {int64_t(-1), int64_t(3), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {4, 12}, part(192, Q4_0, field)));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {4, 12}, part(192, 0, 1)));         // a field of no blocks
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(F32, {4, 12}, part(192, Q4_0, 0)));      // elements are u32
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {4, 3}, part(48, Q4_0, 1)));        // scales are floats
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {1, 3}, part(12, Q4_0, 0)));        // a part of a block
  FAILS(MLXSHIM_ERR_IO, attempt(U32, {4, 16}, part(256, Q4_0, 0)));            // more than the file has
  FAILS(MLXSHIM_ERR_IO, attempt(U32, {1 << 30, 4}, part(int64_t(1) << 34, Q4_0, 0)));
  for (int64_t head_rows : {int64_t(-2), int64_t(1), int64_t(3), int64_t(8), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(F16, {4, 3}, part(24, Q4_0, 1, head_rows, 54)));
  for (int64_t row_bytes : {int64_t(-54), int64_t(0), int64_t(53), int64_t(90), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt(F16, {4, 3}, part(24, Q4_0, 1, 2, row_bytes)));
  std::vector<float> data(48);
  mlxshim_part memory{sizeof memory, 0, 0, 192, data.data(), Q4_0, 0, 0, 0};
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt(U32, {4, 12}, memory));

  // Matrices that do not fit together. Of the three weights above 0 is a matrix, 1 its scales, 2 its biases.
  auto pack = [&](int64_t w, int64_t s, int64_t b, int64_t mode = MLXSHIM_QUANT_AFFINE, int64_t bits = 4,
                  int64_t group = 32) {
    return mlxshim_weights_pack(session.weights, w, s, b, mode, bits, group);
  };
  for (int64_t i : {int64_t(-2), int64_t(3), INT64_MAX, INT64_MIN}) {
    FAILS(MLXSHIM_ERR_ARGUMENT, pack(i, 1, 2));
    FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, i, 2));
    FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, i));
  }
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(-1, 1, 2));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, -1, 2));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, -1));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(1, 0, 2));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, 2, MLXSHIM_QUANT_AFFINE, 4, 64));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, 2, MLXSHIM_QUANT_AFFINE, 7, 32));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, 2, MLXSHIM_QUANT_AFFINE, 0, 0));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, -1, -1, MLXSHIM_QUANT_NONE, 0, 0));
  FAILS(MLXSHIM_ERR_ARGUMENT, pack(0, 1, 2, INT64_MIN, INT64_MAX, -1));
  OK(pack(0, 1, 2));
  OK(pack(0, 1, 2));
  std::remove(path.c_str());
}

#ifndef _WIN32  // which lets nobody shorten an open file
// A file may become shorter before it is read: that is told, and nothing is computed with what is missing.
TEST(file_that_shrinks) {
  Session session;
  const std::string path = temporary(std::vector<char>(4000));
  int64_t file = 0, index = 0;
  OK(mlxshim_file_open(session.context, path.data(), int64_t(path.size()), &file));
  Weight w(F32, F32, {100, 10}, {{sizeof(mlxshim_part), file, 0, 4000, nullptr, 0, 0, 0, 0}});
  const int32_t added = mlxshim_weights_add(session.weights, &w.block, &index);
  OK(added);
  std::filesystem::resize_file(path, 3000);
  Builder b;
  auto x = b.input({F32, TOKENS, {1, 10}});
  b.output(b.op(MLXSHIM_OP_LINEAR, {x, b.weight(index), -1, -1, -1}, {0, 0, 0}, {{F32, TOKENS, {1, 100}}}));
  // A library that has read it already has all of it.
  int64_t program = 0, failed = 0;
  auto words = b.words();
  const int32_t status =
      mlxshim_program_load(session.context, session.weights, 0, words.data(), int64_t(words.size()), &program, &failed);
  CHECK(status == MLXSHIM_OK || status == MLXSHIM_ERR_IO);
  if (status == MLXSHIM_ERR_IO) CHECK(last_error(session.context).find(path) != std::string::npos);
  std::remove(path.c_str());
}
#endif

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
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt({F32, F32, {10}, {{3, 0, 0, 40, data.data(), 0, 0, 0, 0}}}));
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
