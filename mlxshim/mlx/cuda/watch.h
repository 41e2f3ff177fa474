// Whether a GPU is lost, and the end of the process where that is the only way on. Knows nothing of MLX.
#pragma once

#include "driver.h"
#include "gpu.h"

namespace mlxcel {

// The driver's word for what is wrong for good with the GPU of a context, by one of its streams; empty where it works.
std::string stream_fault(CUcontext context, CUstream stream);

// See gpu_watch.
std::shared_ptr<GpuWatch> watch_stream(CUcontext context, CUstream stream);

}  // namespace mlxcel
