/* A driver library that stands in for NVIDIA's, and has what a test says is wrong. It answers the few questions that are
 * asked before anything is computed; everything else is missing. */

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
