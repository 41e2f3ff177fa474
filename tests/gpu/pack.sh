#!/usr/bin/env bash
# Builds everything that the tests on a GPU need and packs it for a machine without network or compiler.
# usage: tests/gpu/pack.sh [--list] OUT [MB]
#   OUT/1 … OUT/N: MLX's CUDA build, the peer mlx-lm and the default model, at most MB (50) apiece
#   OUT/list:      the programs, the library and the tests; --list packs only this again
# There: bring all of it into one folder, a part after the other if need be, and run `bash FOLDER/list/run.sh LOGS`.
# The machine brings the NVIDIA driver, NVIDIA's libraries as Python packages (nvidia-cublas, nvidia-cuda-nvrtc, and
# nvidia-cudnn for the peer), Python 3.12 with numpy, and tar.
set -euo pipefail
only_list=; [ "${1:-}" = --list ] && { only_list=1; shift; }
out=${1:?usage: pack.sh [--list] OUT [MB]}; size=${2:-50}
mkdir -p "$out"; out=$(cd "$out" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd); cd "$root"
cache=${MLXCEL_CACHE:-$HOME/.cache/mlxcel}; gpu=$cache/gpu
# What dist/lock.json pins.
read -r mlx runtime crt lm < <(python3 - <<'P'
import json
lock = json.load(open("dist/lock.json"))
wheels = lock["wheels"]["linux-amd64"]
versions = [wheels[name]["version"] for name in ("mlx-cuda-13", "nvidia-cuda-runtime", "nvidia-cuda-crt")]
print(*versions, next(pin.split("==")[1] for pin in lock["python"]["long"] if pin.startswith("mlx-lm==")))
P
)
stage=$(mktemp -d); trap 'rm -rf "$stage"' EXIT

if [ ! -e "$gpu/.whole-$mlx-$runtime" ]; then
  rm -rf "$gpu"; mkdir -p "$gpu/wheels" "$gpu/peer"
  pip download -q --no-deps -d "$gpu/wheels" "mlx-cuda-13==$mlx" "nvidia-cuda-runtime==$runtime" "nvidia-cuda-crt==$crt"
  for wheel in "$gpu"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$gpu/unpacked"; done
  pip download -q --no-deps -d "$gpu/peer" --only-binary=:all: --python-version 3.12 --implementation cp --platform manylinux_2_35_x86_64 "mlx==$mlx"
  pip download -q --no-deps -d "$gpu/peer" "mlx-lm==$lm"
  touch "$gpu/.whole-$mlx-$runtime"
fi

# In place of what a language model does not need of NVIDIA's: libraries that end the process when they are called.
trap_library() {
  local file=$1 prefix=$2 version=$3
  {
    printf '#include <stdio.h>\n#include <stdlib.h>\n'
    nm -D --undefined-only "$gpu/unpacked/mlx/lib/libmlx.so" | sed -nE "s/^ +U ($prefix[A-Za-z_]+).*/void \\1(void) { fputs(\"\\1 was called\\\\n\", stderr); abort(); }/p"
  } > "$gpu/traps/$file.c"
  printf '%s { global: *; };' "$version" > "$gpu/traps/$file.map"
  ${CC:-cc} -shared -fPIC -Os -s -o "$gpu/traps/$file" "$gpu/traps/$file.c" -Wl,-soname,"$file" ${version:+-Wl,--version-script="$gpu/traps/$file.map"}
}
mkdir -p "$gpu/traps"
trap_library libcudnn.so.9 cudnn libcudnn.so.9
trap_library libcufft.so.12 cufft libcufft.so.12
trap_library libcusolver.so.12 cusolver libcusolver.so.12
trap_library libnccl.so.2 nccl ''

# The library and its tests.
cmake -S mlxshim -B "$gpu/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMLXSHIM_CUDA=ON -DMLX_ROOT="$gpu/unpacked/mlx" \
  -DCUDA_INCLUDE="$gpu/unpacked/nvidia/cu13/include" > "$gpu/cmake.log"
ninja -C "$gpu/build" > "$gpu/build.log" || { tail -40 "$gpu/build.log"; exit 1; }
go run ./dist build
mkdir -p "$out/list" "$stage"/{lib/cuda13/nvidia/cu13,tests,go}
cp "$gpu/build/libmlxshim.so" "$stage/lib/cuda13/"
cp -r bin/lib/native "$stage/lib/"
cp -r "$gpu/unpacked/nvidia/cu13/include" "$stage/lib/cuda13/nvidia/cu13/"
mkdir "$stage/traps"; cp "$gpu"/traps/*.so.* "$stage/traps/"; rm -f "$stage"/traps/*.c "$stage"/traps/*.map
cp "$gpu"/build/tests/*_test "$stage/tests/"
cp bin/mlxcel bin/mlxcel-server "$stage/"
CGO_ENABLED=0 go build -trimpath -o "$stage/load" ./tests/server/load
strip --strip-unneeded "$stage"/lib/*/*.so "$stage"/tests/* "$stage"/{mlxcel,mlxcel-server,load}
${CC:-cc} -O2 -shared -fPIC -o "$stage/nvrtc_count.so" tests/gpu/nvrtc_count.c -Wl,--version-script=tests/gpu/nvrtc_count.map -Wl,-soname,libnvrtc.so.13 -ldl
# A driver that loses the GPU, with all functions that NVIDIA's headers name, the CUDA runtime in MLX knows or we ask for.
{
  echo '#include <cuda.h>' | ${CC:-cc} -E -I"$gpu/unpacked/nvidia/cu13/include" -x c - | sed -nE 's/.*CUresult +(cu[A-Za-z0-9_]+).*/\1/p'
  strings -n 5 "$gpu/unpacked/mlx/lib/libmlx.so" | grep -E '^cu(Array|Coredump|Ctx|Dev|Driver|Event|Ext|Flush|Func|Get|Graph|Green|Import|Init|Ipc|Kernel|Launch|Lib|Link|Logs|Mem|Mipmapped|Module|Multicast|Occ|Param|Pointer|Profiler|Signal|Stream|Surf|Tensor|Tex|Thread|User|Wait)[A-Za-z0-9_]*$'
  printf '%s\n' cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2  # which cuBLAS looks for
  grep -ohE '"cu[A-Z][A-Za-z0-9_]+"' mlxshim/mlx/cuda/driver.cpp loader/*.go | tr -d '"'
} | grep -v '^cuGetProcAddress' | sort -u | sed 's/.*/EXPORT(&)/' > "$gpu/lost.h"
mkdir "$stage/lost"
${CC:-cc} -O2 -shared -fPIC -DEXPORTS="\"$gpu/lost.h\"" -o "$stage/lost/libcuda.so.1" tests/gpu/lost.c -Wl,-soname,libcuda.so.1 -ldl -lpthread
for package in runtime/engine loader; do
  CGO_ENABLED=0 go test -c -trimpath -ldflags="-s -w" -o "$stage/go/$(basename $package).test" ./$package
done
mkdir "$stage/src"
git ls-files -z go.mod tests/goldens runtime/engine loader | xargs -0 cp --parents -t "$stage/src"
tar -C "$stage" -cf - . | zstd -q -9 -T0 -f -o "$out/list/list.tar.zst"
cp tests/gpu/run.sh tests/gpu/*.py "$out/list/"; cp "$(command -v zstd)" "$out/list/zstd"
git describe --always --dirty > "$out/list/commit"
[ -z "$only_list" ] || exit 0

# The parts: one stream, cut.
mkdir -p "$stage/parts/mlx/lib" "$stage/parts/models"
cp "$gpu/unpacked/mlx/lib/libmlx.so" "$stage/parts/mlx/lib/"; strip --strip-unneeded "$stage/parts/mlx/lib/libmlx.so"
cp -r "$gpu/unpacked/mlx/include" "$stage/parts/mlx/"
cp -r "$gpu"/unpacked/mlx_cuda_13.libs "$gpu/peer" "$stage/parts/"
cp -L "$cache"/models/*.gguf "$stage/parts/models/"
rm -rf "$out"/[0-9]*
tar -C "$stage/parts" -cf - . | zstd -q -12 -T0 | split -b "${size}M" - "$stage/part."
n=0; for part in "$stage"/part.*; do n=$((n + 1)); mkdir "$out/$n"; mv "$part" "$out/$n/"; done
du -sh "$out"/*
