"""Takes all of a GPU's memory but some, says so in a line, and holds it until its input ends: a small GPU, for tests.

usage: ballast.py BYTES_LEFT
"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    if code := getattr(cuda, name)(*arguments):
        sys.exit(f"{name}: error {code}")


device, context = ctypes.c_int(), ctypes.c_void_p()
free, total, at = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(free.value - int(sys.argv[1])))
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
print(f"{free.value / 1e9:.2f} GB left", flush=True)
sys.stdin.read()
