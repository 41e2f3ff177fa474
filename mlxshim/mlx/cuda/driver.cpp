#include "driver.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include <iterator>
#include <sstream>
#include <vector>

#include "../../common/status.h"

namespace mlxcel {

namespace {

#if defined(_WIN32)
const char* const kDriver = "nvcuda.dll";
const char* const kCompiler = CUDA_VERSION >= 13000 ? "nvrtc64_130_0.dll" : "nvrtc64_120_0.dll";

void* open_library(const char* name) { return reinterpret_cast<void*>(LoadLibraryA(name)); }
void* find(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}
#else
const char* const kDriver = "libcuda.so.1";
const char* const kCompiler = CUDA_VERSION >= 13000 ? "libnvrtc.so.13" : "libnvrtc.so.12";

void* open_library(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void* find(void* library, const char* name) { return dlsym(library, name); }
#endif

template <class Function>
void look_up(Function& function, void* library, const char* library_name, const char* name) {
  function = reinterpret_cast<Function>(find(library, name));
  if (!function) fail(MLXSHIM_ERR_DEVICE, library_name, " lacks the function ", name, ": update the NVIDIA driver");
}

void* opened(const char* name) {
  void* library = open_library(name);
  if (!library) fail(MLXSHIM_ERR_DEVICE, "the library ", name, " cannot be opened");
  return library;
}

// NVRTC's interface, of which no header comes with the CUDA runtime's.
struct Compiler {
  int (*create)(void** program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*compile)(void* program, int options, const char* const* texts);
  int (*destroy)(void** program);
  int (*code_size)(void* program, size_t* size);
  int (*code)(void* program, char* code);
  int (*log_size)(void* program, size_t* size);
  int (*log)(void* program, char* text);
};

const Compiler& compiler() {
  static const Compiler all = [] {
    void* library = opened(kCompiler);
    Compiler c;
    look_up(c.create, library, kCompiler, "nvrtcCreateProgram");
    look_up(c.compile, library, kCompiler, "nvrtcCompileProgram");
    look_up(c.destroy, library, kCompiler, "nvrtcDestroyProgram");
    look_up(c.code_size, library, kCompiler, "nvrtcGetCUBINSize");
    look_up(c.code, library, kCompiler, "nvrtcGetCUBIN");
    look_up(c.log_size, library, kCompiler, "nvrtcGetProgramLogSize");
    look_up(c.log, library, kCompiler, "nvrtcGetProgramLog");
    return c;
  }();
  return all;
}

}  // namespace

const Driver& driver() {
  static const Driver all = [] {
    void* library = opened(kDriver);
    Driver d;
    look_up(d.error_name, library, kDriver, "cuGetErrorName");
    look_up(d.module_load, library, kDriver, "cuModuleLoadData");
    look_up(d.module_function, library, kDriver, "cuModuleGetFunction");
    look_up(d.memory_info, library, kDriver, "cuMemGetInfo_v2");
    look_up(d.current, library, kDriver, "cuCtxGetCurrent");
    look_up(d.set_current, library, kDriver, "cuCtxSetCurrent");
    look_up(d.default_pool, library, kDriver, "cuDeviceGetDefaultMemPool");
    look_up(d.set_pool, library, kDriver, "cuMemPoolSetAttribute");
    look_up(d.allocate, library, kDriver, "cuMemAllocAsync");
    look_up(d.release, library, kDriver, "cuMemFreeAsync");
    look_up(d.make_stream, library, kDriver, "cuStreamCreate");
    look_up(d.wait_for_stream, library, kDriver, "cuStreamSynchronize");
    look_up(d.query_stream, library, kDriver, "cuStreamQuery");
    look_up(d.make_event, library, kDriver, "cuEventCreate");
    look_up(d.record_event, library, kDriver, "cuEventRecord");
    look_up(d.wait_for_event, library, kDriver, "cuEventSynchronize");
    look_up(d.destroy_event, library, kDriver, "cuEventDestroy_v2");
    look_up(d.exchange_capture_mode, library, kDriver, "cuThreadExchangeStreamCaptureMode");
    look_up(d.copy_to_device, library, kDriver, "cuMemcpyHtoDAsync_v2");
    look_up(d.copy_to_host, library, kDriver, "cuMemcpyDtoHAsync_v2");
    look_up(d.launch, library, kDriver, "cuLaunchKernel");
    return d;
  }();
  return all;
}

const char* driver_word(CUresult result) {
  const char* name = nullptr;
  return driver().error_name(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

void check_driver(CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return;
  fail(result == CUDA_ERROR_OUT_OF_MEMORY ? MLXSHIM_ERR_MEMORY : MLXSHIM_ERR_DEVICE, doing, " failed: ",
       driver_word(result));
}

std::string compile_for_gpu(const char* source, const std::string& options, int major, int minor) {
  const Compiler& c = compiler();
  void* program = nullptr;
  if (c.create(&program, source, "mlxcel.cu", 0, nullptr, nullptr) != 0)
    fail(MLXSHIM_ERR_INTERNAL, "NVRTC takes no program");
  std::istringstream words(text("--gpu-architecture=sm_", major, minor, " --std=c++17 ", options));
  const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  std::vector<const char*> pointers;
  for (const auto& option : all) pointers.push_back(option.c_str());
  std::string result;
  size_t size = 0;
  const bool compiled = c.compile(program, int(pointers.size()), pointers.data()) == 0;
  if (compiled && c.code_size(program, &size) == 0) {
    result.resize(size);
    c.code(program, result.data());
  } else if (c.log_size(program, &size) == 0) {
    result.resize(size);
    c.log(program, result.data());
  }
  c.destroy(&program);
  if (!compiled) fail(MLXSHIM_ERR_DEVICE, "the kernels for this GPU cannot be compiled: ", result);
  return result;
}

}  // namespace mlxcel
