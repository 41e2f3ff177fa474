/* Stands before NVIDIA's driver, as a library of its name, and loses the GPU: from a moment on every call fails, and
 * functions of the host that were queued behind kernels are not called any more. The driver itself stays as it is.
 *   MLXCEL_LOSE_AFTER=N    after N calls
 *   MLXCEL_LOSE_FILE=PATH  when this file appears; it is looked for a hundred times a second
 *   MLXCEL_LOSE_CODE=N     what calls fail with, else 719, CUDA_ERROR_LAUNCH_FAILED
 * The driver's functions are found by cuGetProcAddress, as the CUDA runtime does, or by their names (those in EXPORTS,
 * which pack.sh makes). All return a CUresult, so each is entered through a slot that needs not know its arguments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 4096
#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

/* Used by the slots. */
__attribute__((visibility("hidden"))) void *lost_real[SLOTS];
__attribute__((visibility("hidden"))) volatile uint64_t lost_calls, lost_limit = UINT64_MAX;
__attribute__((visibility("hidden"))) volatile int lost_code = 719;
extern char lost_slots[] __attribute__((visibility("hidden")));

/* A slot of 16 bytes: the address of its entry in lost_real goes to r11, which no argument is in. */
__asm__(
    ".text\n"
    ".hidden lost_slots\n"
    ".balign 16\n"
    "lost_slots:\n"
    ".set slot, 0\n"
    ".rept " TEXT(SLOTS) "\n"
    "  .balign 16\n"
    "  leaq lost_real+8*slot(%rip), %r11\n"
    "  jmp lost_enter\n"
    "  .set slot, slot+1\n"
    ".endr\n"
    ".balign 16\n"
    "lost_enter:\n"
    "  lock incq lost_calls(%rip)\n"
    "  movq lost_calls(%rip), %rax\n"
    "  cmpq lost_limit(%rip), %rax\n"
    "  ja 1f\n"
    "  jmp *(%r11)\n"
    "1: movl lost_code(%rip), %eax\n"
    "  ret\n");

static int is_lost(void) { return lost_calls > lost_limit; }

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The slot of a function of the driver. */
static void *slot_of(void *function) {
  static int used;
  int i = 0;
  pthread_mutex_lock(&mutex);
  while (i < used && lost_real[i] != function) i++;
  if (i == SLOTS) fputs("lost: too many functions\n", stderr), abort();
  if (i == used) lost_real[used++] = function;
  pthread_mutex_unlock(&mutex);
  return lost_slots + 16 * (size_t)i;
}

static void *driver(void) {
  static void *library;
  if (!library) {
    const char *paths[] = {getenv("MLXCEL_REAL_DRIVER"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
                           "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
    for (size_t i = 0; !library && i < sizeof paths / sizeof *paths; i++)
      if (paths[i]) library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) fputs("lost: there is no driver; MLXCEL_REAL_DRIVER may name it\n", stderr), abort();
  }
  return library;
}

static void *real(const char *name) {
  void *function = dlsym(driver(), name);
  if (!function) fprintf(stderr, "lost: the driver has no %s\n", name), abort();
  return function;
}

/* A function of the host that is queued. */
struct queued {
  void (*function)(void *);
  void *data;
};

static void deliver(void *given) {
  struct queued q = *(struct queued *)given;
  free(given);
  if (!is_lost()) q.function(q.data);
}

static void *launch_host_func[2]; /* the driver's, for the default stream of the process and of a thread */

static int queue_host_func(int variant, void *stream, void (*function)(void *), void *data) {
  struct queued *q = malloc(sizeof *q);
  *q = (struct queued){function, data};
  return ((int (*)(void *, void (*)(void *), void *))slot_of(launch_host_func[variant]))(stream, deliver, q);
}
static int queue_host_func_0(void *stream, void (*f)(void *), void *data) { return queue_host_func(0, stream, f, data); }
static int queue_host_func_1(void *stream, void (*f)(void *), void *data) { return queue_host_func(1, stream, f, data); }

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, void *status);

/* What stands for a function of the driver. */
static void *stand_in(const char *name, void *function, uint64_t flags) {
  if (!strncmp(name, "cuGetProcAddress", 16)) return (void *)cuGetProcAddress_v2;
  if (!strncmp(name, "cuGetError", 10)) return function; /* tells what an error is, and needs no GPU */
  if (!strcmp(name, "cuLaunchHostFunc")) {
    int variant = flags & 2 ? 1 : 0;
    launch_host_func[variant] = function;
    return variant ? (void *)queue_host_func_1 : (void *)queue_host_func_0;
  }
  return slot_of(function);
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, void *status) {
  static int (*find)(const char *, void **, int, uint64_t, void *);
  if (!find) *(void **)&find = real("cuGetProcAddress_v2");
  int result = find(symbol, function, version, flags, status);
  if (result == 0 && *function) *function = stand_in(symbol, *function, flags);
  return result;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* Every other function that is looked up by its name: the first call finds where to go. */
#define EXPORT(name)                                                                         \
  static void *to_##name;                                                                    \
  __attribute__((visibility("hidden"))) void *find_##name(void) {                            \
    if (!to_##name) to_##name = stand_in(#name, real(#name), 0);                             \
    return to_##name;                                                                        \
  }                                                                                          \
  __attribute__((naked, visibility("default"))) int name(void) {                             \
    __asm__(                                                                                 \
        "pushq %%rdi\n pushq %%rsi\n pushq %%rdx\n pushq %%rcx\n pushq %%r8\n pushq %%r9\n"  \
        "subq $8, %%rsp\n call find_" #name "\n addq $8, %%rsp\n"                            \
        "popq %%r9\n popq %%r8\n popq %%rcx\n popq %%rdx\n popq %%rsi\n popq %%rdi\n"        \
        "jmp *%%rax\n" ::);                                                                  \
  }
#include EXPORTS

static void *look(void *path) {
  while (access(path, F_OK)) usleep(10000);
  lost_limit = 0;
  return NULL;
}

__attribute__((constructor)) static void begin(void) {
  const char *after = getenv("MLXCEL_LOSE_AFTER"), *file = getenv("MLXCEL_LOSE_FILE"), *code = getenv("MLXCEL_LOSE_CODE");
  pthread_t thread;
  if (after) lost_limit = strtoull(after, NULL, 10);
  if (code) lost_code = atoi(code);
  if (file) pthread_create(&thread, NULL, look, (void *)file);
}
