/* Stands before NVRTC and counts what is compiled: a line of MLXCEL_NVRTC_LOG for each call of nvrtcCompileProgram, with
 * how long it took. The real library lies beside this one as libnvrtc-real.so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void* real(const char* name) {
  static void* library;
  if (!library) {
    Dl_info here;
    char path[4096];
    dladdr((void*)real, &here);
    snprintf(path, sizeof path, "%.*s/libnvrtc-real.so", (int)(strrchr(here.dli_fname, '/') - here.dli_fname), here.dli_fname);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "nvrtc_count: %s\n", dlerror()), abort();
  }
  void* function = dlsym(library, name);
  if (!function) fprintf(stderr, "nvrtc_count: no %s\n", name), abort();
  return function;
}

typedef long (*function)(long, long, long, long, long, long);

#define FORWARD(name) \
  long name(long a, long b, long c, long d, long e, long f) { return ((function)real(#name))(a, b, c, d, e, f); }

FORWARD(nvrtcAddNameExpression)
FORWARD(nvrtcDestroyProgram)
FORWARD(nvrtcGetCUBIN)
FORWARD(nvrtcGetCUBINSize)
FORWARD(nvrtcGetErrorString)
FORWARD(nvrtcGetLoweredName)
FORWARD(nvrtcGetPTX)
FORWARD(nvrtcGetPTXSize)
FORWARD(nvrtcGetProgramLog)
FORWARD(nvrtcGetProgramLogSize)
FORWARD(nvrtcVersion)

static char last[200]; /* the name of the program that was made last; whoever compiles does so at once */

long nvrtcCreateProgram(long program, const char* source, const char* name, long count, long texts, long names) {
  snprintf(last, sizeof last, "%s", name ? name : "?");
  return ((function)real("nvrtcCreateProgram"))(program, (long)source, (long)name, count, texts, names);
}

long nvrtcCompileProgram(long program, long count, long options) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  long result = ((function)real("nvrtcCompileProgram"))(program, count, options, 0, 0, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  const char* path = getenv("MLXCEL_NVRTC_LOG");
  FILE* log = path ? fopen(path, "a") : NULL;
  if (log) {
    fprintf(log, "%.3f s %s\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9, last);
    fclose(log);
  }
  return result;
}
