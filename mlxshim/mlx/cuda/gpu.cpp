#include "gpu.h"

#include <mlx/backend/cuda/device.h>
#include <mlx/primitives.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "driver.h"
#include "status.h"
#include "watch.h"

namespace mlxcel {

namespace {

const char kSource[] =
#include "kernels_source.h"
    ;

// ---- Kernels of a device --------------------------------------------------------------------------------------------

// FNV-1a.
uint64_t hash(const std::string& bytes) {
  uint64_t h = 14695981039346656037u;
  for (unsigned char c : bytes) h = (h ^ c) * 1099511628211u;
  return h;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Written whole or not at all; a cache that cannot be written costs a compilation at every start and nothing else.
void write_cache(const std::filesystem::path& path, const std::string& code) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  auto temporary = path;
  temporary += text(".", int64_t(std::random_device()()));
  std::ofstream file(temporary, std::ios::binary);
  file << code << int64_t(hash(code));
  file.close();
  if (file)
    std::filesystem::rename(temporary, path, ignored);
  else
    std::filesystem::remove(temporary, ignored);
}

// The machine code from the cache, empty where there is none or it is damaged.
std::string read_cache(const std::filesystem::path& path) {
  std::string all = read_file(path);
  // The hash of the code stands behind it in decimal digits.
  for (size_t digits = 1; digits <= 20 && digits < all.size(); digits++) {
    std::string code = all.substr(0, all.size() - digits);
    if (all.compare(all.size() - digits, digits, std::to_string(int64_t(hash(code)))) == 0) return code;
  }
  return {};
}

std::string machine_code(const GpuVariant& variant, int major, int minor) {
  const char* folder = std::getenv("MLX_PTX_CACHE_DIR");
  if (!folder || !*folder) return compile_for_gpu(kSource, variant, major, minor);
  char name[80];
  std::snprintf(name, sizeof name, "mlxcel-%016llx-sm%d%d.cubin",
                static_cast<unsigned long long>(hash(kSource + variant)), major, minor);
  auto path = std::filesystem::path(reinterpret_cast<const char8_t*>(folder)) / name;
  std::string code = read_cache(path);
  if (code.empty()) {
    code = compile_for_gpu(kSource, variant, major, minor);
    write_cache(path, code);
  }
  return code;
}

class Kernels {
 public:
  explicit Kernels(mx::Device device) : device_(device) {
    mx::cu::device(device).make_current();
    module({});
    check_driver(driver().current(&context_), "asking for the CUDA context");
    check_driver(driver().make_stream(&copies_, CU_STREAM_NON_BLOCKING), "making a stream");
  }

  // Compiled, or taken from the cache, when it is first asked for.
  CUmodule module(const GpuVariant& variant) {
    std::lock_guard lock(mutex_);
    auto it = modules_.find(variant);
    if (it != modules_.end()) return it->second;
    auto& opened = mx::cu::device(device_);
    std::string code = machine_code(variant, opened.compute_capability_major(), opened.compute_capability_minor());
    CUmodule loaded;
    check_driver(driver().module_load(&loaded, code.data()), "loading the kernels");
    return modules_.emplace(variant, loaded).first->second;
  }
  CUfunction function(const GpuVariant& variant, const char* name) {
    auto it = functions_.find({variant, name});
    if (it != functions_.end()) return it->second;
    CUfunction function;
    check_driver(driver().module_function(&function, module(variant), name), name);
    return functions_.emplace(std::pair(variant, name), function).first->second;
  }
  CUfunction operator[](const char* name) { return function({}, name); }
  CUcontext context() const { return context_; }
  // For copies that do not wait for what MLX has queued.
  CUstream copies() const { return copies_; }

 private:
  const mx::Device device_;
  CUcontext context_ = nullptr;
  CUstream copies_ = nullptr;
  std::mutex mutex_;
  std::map<GpuVariant, CUmodule> modules_;
  std::map<std::pair<GpuVariant, std::string_view>, CUfunction> functions_;  // the names are literals
};

// By device, for the life of the process.
Kernels& kernels(mx::Device device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, Kernels>;
  std::lock_guard lock(mutex);
  auto it = all->find(device.index);
  if (it == all->end()) it = all->try_emplace(device.index, device).first;
  return it->second;
}

// ---- Device memory --------------------------------------------------------------------------------------------------

std::atomic<int64_t> lasting{0}, passing{0}, peak{0};
std::atomic<int64_t> largest_matrix{0};  // that was dequantized

// What is kept for the next step at most, and the largest piece of it: asking the driver for more costs little beside what
// is done with so much.
constexpr int64_t kMostKept = int64_t(256) << 20, kLargestKept = kMostKept / 4;

// What steps take and give back over and over: asking the driver every time would cost as much as a small kernel. MLX holds
// what a kernel uses until the kernel is done, so memory that comes back is free at once.
class Pool {
 public:
  // 0 where there is none of that size.
  CUdeviceptr take(size_t size) {
    std::lock_guard lock(mutex_);
    auto it = free_.find(size);
    if (it == free_.end() || it->second.empty()) return 0;
    CUdeviceptr at = it->second.back();
    it->second.pop_back();
    held_ -= int64_t(size);
    return at;
  }
  // False where there is enough.
  bool keep(CUdeviceptr at, size_t size) {
    std::lock_guard lock(mutex_);
    if (int64_t(size) > kLargestKept || held_ + int64_t(size) > kMostKept) return false;
    free_[size].push_back(at);
    held_ += int64_t(size);
    return true;
  }
  void clear(CUstream stream) {
    std::lock_guard lock(mutex_);
    for (auto& [size, all] : free_)
      for (CUdeviceptr at : all) driver().release(at, stream);
    free_.clear();
    passing -= std::exchange(held_, 0);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<CUdeviceptr>> free_;
  int64_t held_ = 0;
};

Pool& pool(mx::Device device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, Pool>;
  std::lock_guard lock(mutex);
  return (*all)[device.index];
}

// Sizes that the pool tells apart: an eighth more than is needed at most.
size_t rounded(size_t bytes) {
  size_t step = 256;
  while (step * 16 <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

// An array's memory as MLX expects it, given back by whichever thread lets go of it last. What a step makes comes from the
// pool, weights do not.
mx::allocator::Data device_memory(size_t bytes, mx::Stream stream, bool pooled = true) {
  Kernels& own = kernels(stream.device);
  const size_t size = pooled ? rounded(bytes) : bytes;
  CUdeviceptr at = pooled && size > 0 ? pool(stream.device).take(size) : 0;
  if (size > 0 && !at) {
    const CUstream queue = static_cast<cudaStream_t>(mx::cu::get_command_encoder(stream).stream());
    auto take = [&] { return driver().allocate(&at, size, queue); };
    CUresult result = take();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      mx::clear_cache();
      pool(stream.device).clear(queue);
      result = take();
    }
    check_driver(result, text("allocating ", int64_t(size), " bytes on the GPU").c_str());
    (pooled ? passing : lasting) += int64_t(size);
  }
  int64_t now = lasting + passing, before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  auto* buffer = new mx::cu::CudaBuffer{reinterpret_cast<void*>(at), size, stream.device.index};
  auto give_back = [device = stream.device, pooled, context = own.context(), queue = own.copies()](mx::allocator::Buffer given) {
    auto* buffer = static_cast<mx::cu::CudaBuffer*>(given.ptr());
    const auto at = reinterpret_cast<CUdeviceptr>(buffer->data);
    if (at && !(pooled && pool(device).keep(at, buffer->size))) {
      CUcontext current = nullptr;
      if (driver().current(&current) == CUDA_SUCCESS && !current) driver().set_current(context);
      driver().release(at, queue);  // a failure means that the device is lost, which whoever waits for a result is told
      (pooled ? passing : lasting) -= int64_t(buffer->size);
    }
    delete buffer;
  };
  return mx::allocator::Data(mx::allocator::Buffer(buffer), give_back);
}

CUdeviceptr address(const mx::array& a) { return reinterpret_cast<CUdeviceptr>(mx::gpu_ptr<void>(a)); }

// ---- Ops ------------------------------------------------------------------------------------------------------------

// Plain arguments of a launch, kept until MLX has copied them.
class Arguments {
 public:
  template <class T>
  void add(T value) {
    static_assert(sizeof(T) <= 8);
    std::memcpy(&values_[count_], &value, sizeof value);
    pointers_[count_] = &values_[count_];
    count_++;
  }
  // A struct, which must stay until the launch.
  void add_block(void* block) { pointers_[count_++] = block; }
  void** all() { return pointers_; }

 private:
  static constexpr int kMost = 32;
  uint64_t values_[kMost] = {};
  void* pointers_[kMost] = {};
  int count_ = 0;
};

// How many elements the rows of an array are apart; its rows are pieces of that length, one after the other.
int row_stride(const mx::array& a) {
  const auto& shape = a.shape();
  const auto& strides = a.strides();
  const size_t last = shape.size() - 1;
  bool regular = strides[last] == 1 || shape[last] == 1;
  int64_t stride = shape[last], rows = 1;
  for (size_t i = last; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (rows == 1) stride = strides[i];
    regular = regular && strides[i] == stride * rows;
    rows *= shape[i];
  }
  if (!regular) fail(MLXSHIM_ERR_INTERNAL, "an array's rows are not evenly apart");
  return int(stride);
}

class GpuOp : public mx::Primitive {
 public:
  GpuOp(mx::Stream stream, GpuLaunch launch) : Primitive(stream), launch_(std::move(launch)) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(launch_.kernel) + " is an op of the GPU only");
  }
  void eval_gpu(const std::vector<mx::array>& in, std::vector<mx::array>& out) override {
    auto& encoder = mx::cu::get_command_encoder(stream());
    Arguments arguments;
    for (const auto& a : in) {
      encoder.set_input_array(a);
      arguments.add(address(a));
    }
    for (auto& a : out) {
      a.set_data(device_memory(a.nbytes(), stream()));
      encoder.set_output_array(a);
      arguments.add(address(a));
      encoder.add_temporary(a);
    }
    if (launch_.strided)
      for (const auto& a : in) arguments.add(row_stride(a));
    for (int value : launch_.arguments) arguments.add(value);
    encoder.add_kernel_node_raw(kernels(stream().device).function(launch_.variant, launch_.kernel),
                                dim3(launch_.blocks_x, launch_.blocks_y), dim3(launch_.threads), {}, 0, arguments.all());
  }
  const char* name() const override { return launch_.kernel; }
  bool is_equivalent(const Primitive&) const override { return false; }

 private:
  GpuLaunch launch_;
};

bool always_contiguous(const mx::Primitive& op);

// What a kernel of ours can read from its first element on, one row after the other. Of an array that is not made yet it
// is not known what it will be.
mx::array contiguous(const mx::array& a, mx::Stream stream) {
  const bool is = a.is_available() ? a.flags().row_contiguous : a.has_primitive() && always_contiguous(a.primitive());
  return is ? a : mx::contiguous(a, false, stream);
}

// As in kernels.cu.
struct Span {
  void *keys, *values;
  int64_t capacity, first_row, rows, position;
};
constexpr size_t kSpans = 32;
struct Spans {
  Span spans[kSpans];
};

// inputs: x, positions, what there is of q_norm, k_norm and periods, keys and values of each cache; outputs: the queries,
// the keys and values.
class AttentionInOp : public mx::Primitive {
 public:
  AttentionInOp(mx::Stream stream, AttentionIn facts, std::array<bool, 3> has, std::vector<KvSpan> spans)
      : Primitive(stream), facts_(facts), has_(has), spans_(std::move(spans)) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("attention_in is an op of the GPU only");
  }
  void eval_gpu(const std::vector<mx::array>& in, std::vector<mx::array>& out) override {
    auto& encoder = mx::cu::get_command_encoder(stream());
    const AttentionIn& f = facts_;
    Arguments arguments;
    size_t next = 2;
    for (size_t i = 0; i < 2; i++) arguments.add(address(in[i]));
    for (bool has : has_) arguments.add(has ? address(in[next++]) : CUdeviceptr(0));
    for (size_t i = 0; i < next; i++) encoder.set_input_array(in[i]);
    out[0].set_data(device_memory(out[0].nbytes(), stream()));
    encoder.add_temporary(out[0]);
    arguments.add(address(out[0]));
    for (size_t i = 1; i < out.size(); i++) out[i].copy_shared_buffer(in[next + i - 1]);
    for (const auto& a : out) encoder.set_output_array(a);
    for (int value : {in[0].shape()[1], f.q_at, f.k_at, f.v_at, f.heads, f.kv_heads, f.dim, f.dims, int(f.traditional)})
      arguments.add(value);
    for (float value : {std::log2(f.base), f.scale, f.mscale, f.q_eps, f.k_eps}) arguments.add(value);
    arguments.add(gpu_dtype(in[0].dtype()));
    arguments.add(int(spans_.size()));
    Spans all{};
    for (size_t i = 0; i < spans_.size(); i++) {
      auto &keys = out[1 + 2 * i], &values = out[2 + 2 * i];
      all.spans[i] = {mx::gpu_ptr<void>(keys), mx::gpu_ptr<void>(values), keys.shape()[2], spans_[i].first_row,
                      spans_[i].rows, spans_[i].position};
    }
    arguments.add_block(&all);
    const unsigned rows = unsigned(f.heads + 2 * f.kv_heads);
    encoder.add_kernel_node_raw(kernels(stream().device)["attention_in"], dim3(unsigned(in[0].shape()[0]), (rows + 3) / 4),
                                dim3(128), {}, 0, arguments.all());
  }
  const char* name() const override { return "AttentionIn"; }
  bool is_equivalent(const Primitive&) const override { return false; }

 private:
  AttentionIn facts_;
  std::array<bool, 3> has_;
  std::vector<KvSpan> spans_;
};

// inputs: w, scales, biases, and an earlier matrix with the product that read it, where its memory is used again.
class Dequantize : public mx::Primitive {
 public:
  Dequantize(mx::Stream stream, GpuVariant variant, std::vector<int> arguments, size_t room)
      : Primitive(stream), variant_(std::move(variant)), arguments_(std::move(arguments)), room_(room) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("dequantize is an op of the GPU only");
  }
  void eval_gpu(const std::vector<mx::array>& in, std::vector<mx::array>& made) override {
    auto& encoder = mx::cu::get_command_encoder(stream());
    mx::array& out = made[0];
    Arguments arguments;
    for (size_t i = 0; i < 3; i++) {
      encoder.set_input_array(in[i]);
      arguments.add(address(in[i]));
    }
    if (in.size() > 3) {
      out.copy_shared_buffer(in[3], out.strides(), {true, true, false}, out.size());
      encoder.set_input_array(in[4]);
    } else {
      out.set_data(device_memory(room_, stream()));
    }
    encoder.set_output_array(out);
    encoder.add_temporary(out);
    arguments.add(address(out));
    for (int value : arguments_) arguments.add(value);
    constexpr unsigned kThreads = 256, kTimes = 4;
    const unsigned eights = unsigned(out.size() / 8), blocks = (eights + kThreads * kTimes - 1) / (kThreads * kTimes);
    encoder.add_kernel_node_raw(kernels(stream().device).function(variant_, "dequantize"), dim3(blocks), dim3(kThreads), {},
                                0, arguments.all());
  }
  const char* name() const override { return "Dequantize"; }
  bool is_equivalent(const Primitive&) const override { return false; }

 private:
  GpuVariant variant_;
  std::vector<int> arguments_;
  size_t room_;  // in bytes, of new memory
};

// Whether what an op makes lies one row after the other.
bool always_contiguous(const mx::Primitive& op) {
  if (dynamic_cast<const GpuOp*>(&op) || dynamic_cast<const AttentionInOp*>(&op)) return true;
  const std::string_view name = op.name();  // MLX exports no type information
  return name == "QuantizedMatmul" || name == "Matmul" || name == "RMSNorm" || name == "KvWrite" ||
         name == "Contiguous";
}

}  // namespace

void gpu_prepare(const GpuVariant& variant, mx::Device device) { kernels(device).module(variant); }

bool gpu_has_matrix_units(mx::Device device) { return mx::cu::device(device).compute_capability_major() >= 8; }

void gpu_open(mx::Device device) {
  kernels(device);
  // Memory that is given back stays with the process, as MLX's own does, up to this.
  CUmemoryPool pool;
  check_driver(driver().default_pool(&pool, device.index), "asking for the memory pool");
  uint64_t keep = uint64_t(512) << 20;
  check_driver(driver().set_pool(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), "setting up the memory pool");
}

GpuMemory gpu_memory(mx::Device device) {
  mx::cu::device(device).make_current();
  size_t free = 0, total = 0;
  check_driver(driver().memory_info(&free, &total), "asking for the GPU's memory");
  return {int64_t(free), int64_t(total)};
}

GpuUse gpu_use() { return {lasting, passing, peak, kMostKept + 2 * largest_matrix}; }

void gpu_reset_peak() { peak = lasting + passing; }

void gpu_trim(mx::Device device) { pool(device).clear(kernels(device).copies()); }

void gpu_wait(mx::Stream stream) {
  mx::cu::device(stream.device).make_current();
  check_driver(driver().wait_for_stream(static_cast<cudaStream_t>(mx::cu::get_command_encoder(stream).stream())),
               "waiting for the GPU");
  mx::synchronize(stream);
}

namespace {

class Pace : public GpuPace {
 public:
  explicit Pace(mx::Stream stream) : stream_(stream) {
    mx::cu::device(stream.device).make_current();
    for (CUevent& done : done_) check_driver(driver().make_event(&done, CU_EVENT_DISABLE_TIMING), "making an event");
  }
  ~Pace() override {
    for (CUevent done : done_) driver().destroy_event(done);
  }
  void enqueue(std::vector<mx::array> roots) override {
    mx::cu::device(stream_.device).make_current();
    const CUevent done = done_[turn_];  // with the piece before the last; a new event waits for nothing
    check_driver(driver().wait_for_event(done), "waiting for the GPU");
    // A moment later MLX's own thread has given back what the piece took.
    const auto& given_back = given_back_[turn_];
    for (auto until = std::chrono::steady_clock::now() + kLongest;
         given_back && !*given_back && std::chrono::steady_clock::now() < until;)
      std::this_thread::yield();
    mx::async_eval(std::move(roots));
    auto& encoder = mx::cu::get_command_encoder(stream_);
    check_driver(driver().record_event(done, static_cast<cudaStream_t>(encoder.stream())), "marking the GPU's work");
    given_back_[turn_] = std::make_shared<std::atomic<bool>>(false);
    encoder.add_completed_handler([flag = given_back_[turn_]] { *flag = true; });
    encoder.commit();
    turn_ = 1 - turn_;
  }

 private:
  static constexpr auto kLongest = std::chrono::milliseconds(20);
  const mx::Stream stream_;
  std::array<CUevent, 2> done_{};
  std::array<std::shared_ptr<std::atomic<bool>>, 2> given_back_;
  int turn_ = 0;
};

}  // namespace

std::unique_ptr<GpuPace> gpu_pace(mx::Stream stream) { return std::make_unique<Pace>(stream); }

std::string gpu_fault(mx::Device device) {
  Kernels& own = kernels(device);
  return stream_fault(own.context(), own.copies());
}

std::shared_ptr<GpuWatch> gpu_watch(mx::Device device) {
  Kernels& own = kernels(device);
  return watch_stream(own.context(), own.copies());
}

mx::array gpu_empty(mx::Shape shape, mx::Dtype dtype, mx::Stream stream) {
  size_t bytes = mx::size_of(dtype);
  for (auto dim : shape) bytes *= size_t(dim);
  mx::array made(device_memory(bytes, stream, false), std::move(shape), dtype);
  // From now on other streams may use it too.
  check_driver(driver().wait_for_stream(static_cast<cudaStream_t>(mx::cu::get_command_encoder(stream).stream())),
               "waiting for the GPU");
  return made;
}

void gpu_upload(const mx::array& to, int64_t at, const void* from, int64_t bytes, mx::Stream stream) {
  const CUstream copies = kernels(stream.device).copies();
  mx::cu::device(stream.device).make_current();
  check_driver(driver().copy_to_device(address(to) + size_t(at), from, size_t(bytes), copies), "copying to the GPU");
  check_driver(driver().wait_for_stream(copies), "copying to the GPU");
}

void gpu_download(void* to, const mx::array& from, int64_t bytes, mx::Stream stream) {
  const CUstream copies = kernels(stream.device).copies();
  mx::cu::device(stream.device).make_current();
  check_driver(driver().copy_to_host(to, address(from), size_t(bytes), copies), "copying from the GPU");
  check_driver(driver().wait_for_stream(copies), "copying from the GPU");
}

void gpu_fill(const mx::array& to, uint32_t seed, mx::Stream stream) {
  int kind = 3;
  int64_t count = int64_t(to.nbytes()) / 4;
  if (mx::issubdtype(to.dtype(), mx::floating)) kind = gpu_dtype(to.dtype()), count = int64_t(to.size());
  auto at = address(to);
  void* arguments[] = {&at, &count, &kind, &seed};
  auto blocks = unsigned(std::clamp<int64_t>((count + 255) / 256, 1, 4096));
  check_driver(driver().launch(kernels(stream.device)["fill_random"], blocks, 1, 1, 256, 1, 1, 0,
                               static_cast<cudaStream_t>(mx::cu::get_command_encoder(stream).stream()), arguments,
                               nullptr),
               "making up weights");
}

int64_t gpu_host_bytes(const mx::array& array) {
  const auto* buffer = static_cast<const mx::cu::CudaBuffer*>(array.buffer().ptr());
  return buffer->device < 0 ? int64_t(array.nbytes()) : 0;
}

void gpu_kv_write(std::vector<mx::array>& caches, const std::vector<KvSpan>& spans, const mx::array& k,
                  const mx::array& v, mx::Stream stream) {
  auto& encoder = mx::cu::get_command_encoder(stream);
  encoder.set_input_array(k);
  encoder.set_input_array(v);
  for (const auto& cache : caches) encoder.set_output_array(cache);

  const int64_t item = int64_t(k.itemsize());
  // In units of 16 bytes where every row begins and ends at such.
  auto wide = [&](const mx::array& a) {
    return address(a) % 16 == 0 && a.shape()[2] * item % 16 == 0 && a.strides()[0] * item % 16 == 0 &&
           a.strides()[1] * item % 16 == 0;
  };
  const bool by_16 = wide(k) && wide(v);
  const int64_t unit = by_16 ? 16 : 2;
  const int heads = k.shape()[1];
  for (size_t first = 0; first < spans.size(); first += kSpans) {
    const size_t count = std::min(kSpans, spans.size() - first);
    Spans all{};
    int64_t work = 1;
    for (size_t i = 0; i < count; i++) {
      const KvSpan& span = spans[first + i];
      auto &keys = caches[2 * (first + i)], &values = caches[2 * (first + i) + 1];
      all.spans[i] = {mx::gpu_ptr<void>(keys), mx::gpu_ptr<void>(values), keys.shape()[2], span.first_row, span.rows,
                      span.position};
      work = std::max(work, span.rows * heads * std::max(k.shape()[2], v.shape()[2]) * item / unit);
    }
    auto k_at = address(k), v_at = address(v);
    int64_t k_row = k.strides()[0] * item, k_head = k.strides()[1] * item, v_row = v.strides()[0] * item,
            v_head = v.strides()[1] * item;
    int k_units = int(k.shape()[2] * item / unit), v_units = int(v.shape()[2] * item / unit), spans_now = int(count);
    void* arguments[] = {&k_at,  &k_row,  &k_head,  &k_units,           &v_at, &v_row,
                         &v_head, &v_units, const_cast<int*>(&heads), &spans_now, &all};
    encoder.add_kernel_node_raw(kernels(stream.device)[by_16 ? "kv_write_16" : "kv_write_2"],
                                dim3(unsigned(std::min<int64_t>((work + 127) / 128, 1024)), 2), dim3(128), {}, 0,
                                arguments);
  }
}

std::vector<mx::array> gpu_calls(GpuLaunch launch, std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                 std::vector<mx::Dtype> dtypes, mx::Stream stream) {
  if (!launch.strided)
    for (auto& a : inputs) a = contiguous(a, stream);
  return mx::array::make_arrays(std::move(shapes), dtypes, std::make_shared<GpuOp>(stream, std::move(launch)), inputs);
}

mx::array gpu_call(GpuLaunch launch, std::vector<mx::array> inputs, mx::Shape shape, mx::Dtype dtype,
                   mx::Stream stream) {
  return gpu_calls(std::move(launch), std::move(inputs), {std::move(shape)}, {dtype}, stream)[0];
}

mx::array gpu_attention_in(const AttentionIn& facts, const mx::array& x, const mx::array& positions,
                           std::optional<mx::array> q_norm, std::optional<mx::array> k_norm,
                           std::optional<mx::array> periods, std::vector<Cache*> caches, std::vector<KvSpan> spans,
                           mx::Stream stream) {
  std::vector<mx::array> inputs{contiguous(x, stream), positions};
  for (const auto* a : {&q_norm, &k_norm, &periods})
    if (*a) inputs.push_back(**a);
  std::vector<mx::Shape> shapes{{x.shape()[0], facts.heads, facts.dim}};
  for (Cache* cache : caches)
    for (const auto* part : {&cache->keys, &cache->values}) {
      inputs.push_back(**part);
      shapes.push_back((*part)->shape());
    }
  std::vector<mx::Dtype> dtypes(shapes.size(), x.dtype());
  auto op = std::make_shared<AttentionInOp>(stream, facts, std::array{q_norm.has_value(), k_norm.has_value(), periods.has_value()},
                                            std::move(spans));
  auto made = mx::array::make_arrays(std::move(shapes), dtypes, std::move(op), inputs);
  for (size_t s = 0; s < caches.size(); s++) {
    caches[s]->keys = made[1 + 2 * s];
    caches[s]->values = made[2 + 2 * s];
  }
  return made[0];
}

mx::array gpu_take(const mx::array& x, const mx::array& indices, mx::Stream stream) {
  mx::Shape shape = indices.shape();
  int64_t bytes = int64_t(x.itemsize());
  for (size_t i = 1; i < x.ndim(); i++) shape.push_back(x.shape()[i]), bytes *= x.shape()[i];
  constexpr unsigned kThreads = 128;
  GpuLaunch launch{"take_bytes", unsigned(indices.size()), unsigned((bytes + kThreads - 1) / kThreads), kThreads,
                   {int(bytes)}};
  return gpu_call(std::move(launch), {indices, x}, std::move(shape), x.dtype(), stream);
}

mx::array GpuScratch::dequantize(const mx::array& w, const mx::array& scales, const std::optional<mx::array>& biases,
                                 const std::string& mode, int bits, int group, mx::Dtype dtype, mx::Stream stream) {
  turn_ = 1 - turn_;
  Half& half = halves_[turn_];
  mx::Shape shape = w.shape();
  shape.back() = int(int64_t(shape.back()) * 32 / bits);
  int64_t bytes = int64_t(mx::size_of(dtype));
  for (auto dim : shape) bytes *= dim;
  if (bytes > room_) fail(MLXSHIM_ERR_INTERNAL, "a matrix of ", bytes, " bytes in a place for ", room_);
  largest_matrix = std::max(largest_matrix.load(), room_);
  std::vector<mx::array> inputs{w, scales, biases ? *biases : scales};
  if (half.product) inputs.insert(inputs.end(), {*half.matrix, *half.product});
  auto op = std::make_shared<Dequantize>(
      stream, variant(mode, bits),
      std::vector<int>{int(bytes / int64_t(mx::size_of(dtype)) / 8), std::countr_zero(unsigned(group) / 8),
                       mode == "affine" ? gpu_dtype(scales.dtype()) : 0, gpu_dtype(dtype)},
      size_t(room_));
  half.matrix = mx::array(std::move(shape), dtype, std::move(op), std::move(inputs));
  half.product.reset();
  return *half.matrix;
}

GpuVariant GpuScratch::variant(const std::string& mode, int bits) {
  return text("-DDEQUANTIZE -DMODE=", gpu_quantization(mode), " -DBITS=", bits);
}

void GpuScratch::read_by(const mx::array& product) { halves_[turn_].product = product; }

int gpu_quantization(const std::string& mode) { return mode == "affine" ? 0 : mode == "mxfp4" ? 1 : mode == "mxfp8" ? 2 : 3; }

int gpu_dtype(mx::Dtype dtype) {
  if (dtype == mx::float32) return 0;
  if (dtype == mx::float16) return 1;
  if (dtype == mx::bfloat16) return 2;
  fail(MLXSHIM_ERR_UNSUPPORTED, "the GPU's kernels take f32, f16 and bf16 only");
}

}  // namespace mlxcel
