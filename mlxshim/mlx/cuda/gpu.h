// What the library does on a CUDA GPU without MLX: device memory of its own, copies to and from it, and kernels of its
// own (kernels.cu) as ops of MLX's graph. In a library that is built without CUDA every function here throws.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../convert.h"
#include "../kv_write.h"

namespace mlxcel {

// Makes a device ready: its kernels are compiled, or taken from the cache that MLX_PTX_CACHE_DIR names. The calling
// thread must have used the device through MLX, or do so first through this.
void gpu_open(mx::Device device);

struct GpuMemory {
  int64_t free = 0, total = 0;  // of the device, for all its users
};
GpuMemory gpu_memory(mx::Device device);

// What of a GPU's memory is taken by us beside MLX's own arrays.
struct GpuUse {
  int64_t lasting = 0;  // weights
  int64_t passing = 0;  // by steps, or kept for the next one
  int64_t peak = 0;     // of both
  int64_t most_passing = 0;  // what is to be expected
};
GpuUse gpu_use();
void gpu_reset_peak();
// Gives back what is kept for reuse.
void gpu_trim(mx::Device device);

// Waits for all that was enqueued on a stream. Before MLX waits, which sees no errors and may then wait for ever, the
// driver does.
void gpu_wait(mx::Stream stream);

// Enqueues work in pieces, of which the GPU has no more than two at a time: what a piece took is free for the next but
// one. Belongs to one stream.
class GpuPace {
 public:
  virtual ~GpuPace() = default;
  virtual void enqueue(std::vector<mx::array> roots) = 0;
};
std::unique_ptr<GpuPace> gpu_pace(mx::Stream stream);

// The driver's word for what is wrong with the GPU for good; empty where it works.
std::string gpu_fault(mx::Device device);

// Looks after the calls on a GPU. On a lost one MLX may wait for ever, as the driver drops the host's functions that are
// queued behind kernels; and where its destructors meet an error, the program ends without a word. Where either happens
// and the driver says that the GPU is lost, the process ends with a sentence.
class GpuWatch {
 public:
  virtual ~GpuWatch() = default;
  virtual void begin() = 0;  // of a call
  virtual void end() noexcept = 0;
};
std::shared_ptr<GpuWatch> gpu_watch(mx::Device device);

// A new array in device memory with any content.
mx::array gpu_empty(mx::Shape shape, mx::Dtype dtype, mx::Stream stream);
// Copies between host memory and the bytes of an evaluated, row-contiguous array, and waits for it.
void gpu_upload(const mx::array& to, int64_t at, const void* from, int64_t bytes, mx::Stream stream);
void gpu_download(void* to, const mx::array& from, int64_t bytes, mx::Stream stream);
// Fills a row-contiguous array: floats in [-1/32, 1/32), integers with any bits; the same for the same seed.
void gpu_fill(const mx::array& to, uint32_t seed, mx::Stream stream);

// How many bytes of an evaluated array are not device memory.
int64_t gpu_host_bytes(const mx::array& array);

// Writes the rows of k and v into `caches` (keys and values of each span), as MLX evaluates the graph.
void gpu_kv_write(std::vector<mx::array>& caches, const std::vector<KvSpan>& spans, const mx::array& k,
                  const mx::array& v, mx::Stream stream);

// How queries, keys and values come out of a joined product x [T, width] and go into attention.
struct AttentionIn {
  int q_at, k_at, v_at;  // where in a row of x they begin
  int heads, kv_heads, dim;
  float q_eps, k_eps;
  int dims;  // of the rotation, as MLXSHIM_OP_ROPE
  bool traditional;
  float base, scale, mscale;
};
constexpr int kAttentionInDim = 256;  // the largest dim
constexpr size_t kAttentionInSpans = 32;
// Returns the queries [T, heads, dim] and writes keys and values to the caches, which become the new ones.
mx::array gpu_attention_in(const AttentionIn& facts, const mx::array& x, const mx::array& positions,
                           std::optional<mx::array> q_norm, std::optional<mx::array> k_norm,
                           std::optional<mx::array> periods, std::vector<Cache*> caches, std::vector<KvSpan> spans,
                           mx::Stream stream);

// Which part of the kernels' source is compiled and how: the compiler's options, "" for the part that every model needs.
using GpuVariant = std::string;
// Compiles it, unless that is done, so that no step has to.
void gpu_prepare(const GpuVariant& variant, mx::Device device);
// Whether a device has what the variants need: matrix units for f16 and bf16, and copies past registers (capability 8.0).
bool gpu_has_matrix_units(mx::Device device);

struct GpuLaunch {
  const char* kernel;
  unsigned blocks_x, blocks_y, threads;
  std::vector<int> arguments;  // after the inputs and the outputs; a float's bits by number_bits
  // Whether the inputs' rows may be apart: then how many elements, for each input, stands before the other arguments.
  // Else the inputs are made contiguous.
  bool strided = false;
  GpuVariant variant = {};
};
inline int number_bits(float value) { return std::bit_cast<int>(value); }

// New arrays that a kernel of ours makes of the inputs. The kernel's arguments are pointers, ints and floats.
std::vector<mx::array> gpu_calls(GpuLaunch launch, std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                 std::vector<mx::Dtype> dtypes, mx::Stream stream);
// The same for one array.
mx::array gpu_call(GpuLaunch launch, std::vector<mx::array> inputs, mx::Shape shape, mx::Dtype dtype, mx::Stream stream);

// Rows of x [rows, ..], whatever their type, by indices i32 of any shape.
mx::array gpu_take(const mx::array& x, const mx::array& indices, mx::Stream stream);

// What a matrix may take where it is dequantized; a larger one is in parts.
constexpr int64_t kMostMatrix = int64_t(256) << 20;

// Where a step's matrices are dequantized, two by turns: then one is made while a product reads the other, and a step
// takes little memory, most of which stays in the GPU's cache. Whatever reads a matrix must be done before the next but
// one takes its place, which the graph does not know by itself: so a matrix is made after the product that read the one
// before it there.
class GpuScratch {
 public:
  // The bytes of the largest matrix.
  explicit GpuScratch(int64_t room) : room_(room) {}

  // w packed [rows, width * bits / 32] -> [rows, width].
  mx::array dequantize(const mx::array& w, const mx::array& scales, const std::optional<mx::array>& biases,
                       const std::string& mode, int bits, int group, mx::Dtype dtype, mx::Stream stream);
  // The kernel that this takes.
  static GpuVariant variant(const std::string& mode, int bits);
  // Says what alone is computed of the matrix made last.
  void read_by(const mx::array& product);

 private:
  struct Half {
    std::optional<mx::array> matrix, product;
  };
  int64_t room_;
  std::array<Half, 2> halves_;
  int turn_ = 0;
};

// A float type, and a mode of quantization, as the kernels know them.
int gpu_dtype(mx::Dtype dtype);
int gpu_quantization(const std::string& mode);

}  // namespace mlxcel
