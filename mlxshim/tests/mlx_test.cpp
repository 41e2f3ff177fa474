// The MLX library from inside: our CPU ops against MLX's own, and how weights are read.
#include <mlx/mlx.h>

#include <filesystem>
#include <fstream>

#include "../mlx/cpu_ops.h"
#include "../mlx/step.h"
#include "../mlx/weights.h"
#include "abi.h"
#include "status.h"

using namespace test;
namespace mx = mlx::core;

namespace {

mx::Stream cpu_stream() { return mx::default_stream(mx::Device::cpu); }

// The largest difference, relative to 1 + |b|.
float difference(mx::array a, mx::array b) {
  auto d = mx::divide(mx::abs(mx::subtract(a, b)), mx::add(mx::array(1.f), mx::abs(b)));
  return mx::max(d).item<float>();
}

mx::array normal(mx::Shape shape, uint64_t seed) {
  return mx::random::normal(shape, mx::float32, 0, 1, mx::random::key(seed));
}

}  // namespace

TEST(cpu_rms_norm_is_mlx_s) {
  auto s = cpu_stream();
  auto x = normal({5, 3, 64}, 1), w = normal({64}, 2), wide = normal({4, 256}, 3);
  CHECK(difference(mlxcel::cpu_rms_norm(x, w, 1e-5f, s), mx::fast::rms_norm(x, w, 1e-5f, s)) < 1e-6);
  CHECK(difference(mlxcel::cpu_rms_norm(x, std::nullopt, 1e-6f, s), mx::fast::rms_norm(x, std::nullopt, 1e-6f, s)) <
        1e-6);
  // Views: columns of a wider array, heads out of it, and a transposed one.
  auto columns = mx::slice(wide, {0, 64}, {4, 192}, s), heads = mx::reshape(columns, {4, 2, 64}, s);
  CHECK(difference(mlxcel::cpu_rms_norm(heads, w, 1e-5f, s), mx::fast::rms_norm(heads, w, 1e-5f, s)) < 1e-6);
  auto turned = mx::transpose(x, {1, 0, 2}, s), odd = mx::transpose(normal({64, 5}, 4), s);
  CHECK(difference(mlxcel::cpu_rms_norm(turned, w, 1e-5f, s), mx::fast::rms_norm(turned, w, 1e-5f, s)) < 1e-6);
  CHECK(difference(mlxcel::cpu_rms_norm(odd, w, 1e-5f, s), mx::fast::rms_norm(odd, w, 1e-5f, s)) < 1e-6);
}

TEST(cpu_rope_is_mlx_s) {
  auto s = cpu_stream();
  for (int position : {0, 1, 700, 30000})
    for (bool traditional : {false, true}) {
      auto x = normal({6, 3, 64}, 5);
      auto at = mx::add(mx::arange(0, 6, 1, mx::int32, s), mx::array(position), s);
      mlxcel::RopeFacts facts{64, traditional, 0.5f, 1};
      // MLX on one sequence of six tokens, as mlx-lm calls it.
      auto sequence = mx::expand_dims(mx::transpose(x, {1, 0, 2}, s), 0, s);
      auto theirs = mx::fast::rope(sequence, 64, traditional, 100000.f, 0.5f, position, std::nullopt, s);
      theirs = mx::transpose(mx::squeeze(theirs, 0, s), {1, 0, 2}, s);
      auto ours = mlxcel::cpu_rope(x, at, mlxcel::rope_frequencies(64, 100000.f, std::nullopt, s), facts, s);
      // The same angles to the bit or nearly: an angle of 15,000 that is off by one rounding turns by 1e-3.
      CHECK(difference(ours, theirs) < 2e-6);
      auto periods = mx::exp(mx::divide(mx::arange(0, 32, 1, mx::float32, s), mx::array(4.f), s), s);
      facts.scale = 1;
      theirs = mx::fast::rope(sequence, 64, traditional, std::nullopt, 1.f, position, periods, s);
      theirs = mx::transpose(mx::squeeze(theirs, 0, s), {1, 0, 2}, s);
      ours = mlxcel::cpu_rope(x, at, mlxcel::rope_frequencies(64, 0, periods, s), facts, s);
      CHECK(difference(ours, theirs) < 2e-6);
    }
}

TEST(cpu_swiglu_is_mlx_s) {
  auto s = cpu_stream();
  auto both = mx::multiply(normal({3, 100}, 6), mx::array(10.f), s);
  auto gate = mx::slice(both, {0, 0}, {3, 50}, s), up = mx::slice(both, {0, 50}, {3, 100}, s);
  auto theirs = mx::multiply(mx::multiply(gate, mx::sigmoid(gate, s), s), up, s);
  CHECK(difference(mlxcel::cpu_swiglu(gate, up, s), theirs) < 2e-6);
}

TEST(weights_are_converted_in_pieces) {
  std::vector<float> data;
  const int rows = 1000, width = 9000;  // more than a piece
  for (int i = 0; i < rows * width; i++) data.push_back(float(i % 1000) - 100);
  mlxcel::WeightFacts facts{"w", {}, F32};
  facts.type.dtype = F32;
  facts.type.ndim = 2;
  facts.type.dims[0] = rows, facts.type.dims[1] = width;
  const int64_t bytes = int64_t(data.size()) * 4;
  mlxcel::WeightSource source({{nullptr, 0, 8000, data.data()}, {nullptr, 0, bytes - 8000, data.data() + 2000}}, F32);
  mx::array whole(data.data(), {rows, width});
  CHECK(mx::array_equal(mlxcel::load_to_host(facts, source), whole).item<bool>());
  facts.type.dtype = MLXSHIM_DTYPE_BF16;
  CHECK(mx::array_equal(mlxcel::load_to_host(facts, source), mx::astype(whole, mx::bfloat16)).item<bool>());
}

TEST(weights_that_are_made_up) {
  mlxcel::WeightFacts facts{"w", {}, F32};
  facts.type.dtype = F32;
  facts.type.ndim = 1;
  facts.type.dims[0] = 100000;
  auto made = [&](int64_t seed) {
    return mlxcel::load_to_host(facts, mlxcel::WeightSource({{nullptr, seed, 400000, nullptr, true}}, F32));
  };
  auto first = made(1);
  CHECK(mx::array_equal(first, made(1)).item<bool>());
  CHECK(!mx::array_equal(first, made(2)).item<bool>());
  CHECK(mx::max(mx::abs(first)).item<float>() <= 1.f / 32 && std::abs(mx::mean(first).item<float>()) < 1e-3f);
}

TEST(a_failed_read_is_an_error) {
  auto path = (std::filesystem::temp_directory_path() / "mlxshim-short").string();
  std::ofstream(path) << std::string(200, 'x');
  auto file = std::make_shared<mlxcel::File>(path);
  mlxcel::WeightFacts facts{"w", {}, F32};
  facts.type.dtype = F32;
  facts.type.ndim = 1;
  facts.type.dims[0] = 1000;
  mlxcel::WeightSource source({{file, file->size() - 100, 4000, nullptr}}, F32);
  bool caught = false;
  try {
    mlxcel::load_to_host(facts, source);
  } catch (const mlxcel::Status& e) {
    caught = e.code == MLXSHIM_ERR_IO;
  }
  CHECK(caught);
}
