// NVIDIA's driver and NVRTC, as far as we call them ourselves. Both are libraries that MLX has loaded before.
#pragma once

#include <cuda.h>

#include <string>

namespace mlxcel {

struct Driver {
  CUresult (*error_name)(CUresult, const char**);
  CUresult (*module_load)(CUmodule*, const void*);
  CUresult (*module_function)(CUfunction*, CUmodule, const char*);
  CUresult (*memory_info)(size_t*, size_t*);
  CUresult (*current)(CUcontext*);
  CUresult (*set_current)(CUcontext);
  CUresult (*default_pool)(CUmemoryPool*, CUdevice);
  CUresult (*set_pool)(CUmemoryPool, CUmemPool_attribute, void*);
  CUresult (*allocate)(CUdeviceptr*, size_t, CUstream);
  CUresult (*release)(CUdeviceptr, CUstream);
  CUresult (*make_stream)(CUstream*, unsigned);
  CUresult (*wait_for_stream)(CUstream);
  CUresult (*query_stream)(CUstream);
  CUresult (*make_event)(CUevent*, unsigned);
  CUresult (*record_event)(CUevent, CUstream);
  CUresult (*wait_for_event)(CUevent);
  CUresult (*destroy_event)(CUevent);
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*);
  CUresult (*copy_to_device)(CUdeviceptr, const void*, size_t, CUstream);
  CUresult (*copy_to_host)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                     void**);
};

// Throws MLXSHIM_ERR_DEVICE where the driver lacks something.
const Driver& driver();

// What the driver calls an error.
const char* driver_word(CUresult result);

// Throws MLXSHIM_ERR_MEMORY where the device has no memory left, else MLXSHIM_ERR_DEVICE.
void check_driver(CUresult result, const char* doing);

// Machine code of the source for a compute capability; options stand between spaces.
std::string compile_for_gpu(const char* source, const std::string& options, int major, int minor);

}  // namespace mlxcel
