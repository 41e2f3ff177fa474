/* A driver library that stands in for NVIDIA's, and has what a test says is wrong. It answers the few questions that are
 * asked before anything is computed; whatever is called after that, by MLX or the CUDA runtime, fails. */

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#ifndef VERSION /* of CUDA: 13000 is 13.0 */
#define VERSION 13000
#endif
#ifndef INIT /* what cuInit answers */
#define INIT 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef CAPABILITY /* 89 is 8.9 */
#define CAPABILITY 89
#endif

EXPORT int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return 0;
}

EXPORT int cuInit(unsigned flags) {
  (void)flags;
  return INIT;
}

EXPORT int cuDeviceGetCount(int *count) {
  *count = DEVICES;
  return INIT;
}

EXPORT int cuDeviceGet(int *device, int index) {
  *device = index;
  return index < DEVICES ? 0 : 101;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? CAPABILITY / 10 : attribute == 76 ? CAPABILITY % 10 : 0;
  return 0;
}

EXPORT int cuDeviceGetName(char *name, int length, int device) {
  static const char test[] = "Test GPU";
  (void)device;
  for (int i = 0; i < length && i < (int)sizeof test; i++) name[i] = test[i];
  return 0;
}

EXPORT int cuDeviceTotalMem_v2(unsigned long long *bytes, int device) {
  (void)device;
  *bytes = 8ull << 30;
  return 0;
}

EXPORT int cuDeviceGetUuid(char *uuid, int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (char)(i + device);
  return 0;
}

#ifndef REST /* what every other function answers: 719 is CUDA_ERROR_LAUNCH_FAILED */
#define REST 719
#endif

/* Whatever its arguments are. */
static int rest(void) { return REST; }

static int same(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

/* How the CUDA runtime finds functions. */
EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
  static const struct {
    const char *name;
    void *function;
  } known[] = {
      {"cuDriverGetVersion", (void *)cuDriverGetVersion}, {"cuInit", (void *)cuInit},
      {"cuDeviceGetCount", (void *)cuDeviceGetCount},     {"cuDeviceGet", (void *)cuDeviceGet},
      {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute}, {"cuDeviceGetName", (void *)cuDeviceGetName},
      {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2},  {"cuDeviceGetUuid", (void *)cuDeviceGetUuid},
      {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
  };
  (void)version, (void)flags;
  *function = (void *)rest;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (same(symbol, known[i].name)) *function = known[i].function;
  if (status) *status = 0;
  return 0;
}

/* What MLX and its backend library name themselves. */
#define FAILS(name) \
  EXPORT int name(void) { return rest(); }
FAILS(cuCtxGetCurrent)
FAILS(cuCtxSetCurrent)
FAILS(cuDeviceGetDefaultMemPool)
FAILS(cuFuncSetAttribute)
FAILS(cuGetErrorName)
FAILS(cuGetErrorString)
FAILS(cuGetExportTable)
FAILS(cuGraphAddKernelNode_v2)
FAILS(cuGraphCreate)
FAILS(cuGraphGetNodes)
FAILS(cuGraphKernelNodeSetAttribute)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuMemAllocAsync)
FAILS(cuMemFreeAsync)
FAILS(cuMemGetInfo_v2)
FAILS(cuMemPoolSetAttribute)
FAILS(cuMemcpyDtoHAsync_v2)
FAILS(cuMemcpyHtoDAsync_v2)
FAILS(cuModuleGetFunction)
FAILS(cuModuleLoadData)
FAILS(cuModuleLoadDataEx)
FAILS(cuModuleUnload)
FAILS(cuOccupancyMaxPotentialBlockSize)
FAILS(cuStreamCreate)
FAILS(cuStreamQuery)
FAILS(cuStreamSynchronize)
FAILS(cuTensorMapEncodeTiled)
FAILS(cuThreadExchangeStreamCaptureMode)
