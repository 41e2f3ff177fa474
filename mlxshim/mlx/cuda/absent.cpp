// Stands in for a library of NVIDIA's that MLX is linked to and that nothing of ours makes it call: a bundle without it
// is smaller by hundreds of megabytes. Whoever calls a function of it all the same ends the process and is told why.
#include <cstdio>
#include <cstdlib>

#define ABSENT(name)                                                                                       \
  extern "C" __attribute__((visibility("default"), noreturn)) void name() {                                \
    std::fputs("mlxcel: MLX called " #name ", and this bundle is without that library of NVIDIA's\n", stderr); \
    std::abort();                                                                                          \
  }

#if defined(ABSENT_cudnn)
ABSENT(cudnnBackendCreateDescriptor)
ABSENT(cudnnBackendDestroyDescriptor)
ABSENT(cudnnBackendExecute)
ABSENT(cudnnBackendFinalize)
ABSENT(cudnnBackendGetAttribute)
ABSENT(cudnnBackendPopulateCudaGraph)
ABSENT(cudnnBackendSetAttribute)
ABSENT(cudnnBackendUpdateCudaGraph)
ABSENT(cudnnCreate)
ABSENT(cudnnDestroy)
ABSENT(cudnnGetErrorString)
ABSENT(cudnnGetLastErrorString)
ABSENT(cudnnGetStream)
ABSENT(cudnnGetVersion)
ABSENT(cudnnSetStream)
#elif defined(ABSENT_cufft)
ABSENT(cufftCreate)
ABSENT(cufftDestroy)
ABSENT(cufftSetAutoAllocation)
ABSENT(cufftSetStream)
ABSENT(cufftSetWorkArea)
ABSENT(cufftXtExec)
ABSENT(cufftXtMakePlanMany)
#elif defined(ABSENT_cusolver)
ABSENT(cusolverDnCreate)
ABSENT(cusolverDnDestroy)
ABSENT(cusolverDnSetStream)
ABSENT(cusolverDnSpotrf)
ABSENT(cusolverDnSpotrfBatched)
ABSENT(cusolverDnSpotrf_bufferSize)
#elif defined(ABSENT_nccl)
ABSENT(ncclAllGather)
ABSENT(ncclAllReduce)
ABSENT(ncclCommCount)
ABSENT(ncclCommInitRank)
ABSENT(ncclCommSplit)
ABSENT(ncclCommUserRank)
ABSENT(ncclGetErrorString)
ABSENT(ncclGetUniqueId)
ABSENT(ncclReduceScatter)
#endif
