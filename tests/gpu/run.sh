#!/usr/bin/env bash
# The tests and figures on an NVIDIA GPU, from the folder that pack.sh made; under ten minutes.
# usage: FOLDER/list/run.sh LOGS [STEP...]     all steps, or those named (setup is made where it is missing); LOGS.tar.gz holds all logs
set -uo pipefail
from=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); parts=$(dirname "$from")
logs=${1:?usage: run.sh LOGS [STEP...]}; shift; mkdir -p "$logs"; logs=$(cd "$logs" && pwd)
here=${GPU_TESTS:-/tmp/mlxcel-gpu}; mkdir -p "$here"; cd "$here"
bundle=$here/lib/cuda13; failed=()

# ---- Setup --------------------------------------------------------------------------------------------------------
nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])')
if [ ! -e .parts ]; then
  chmod +x "$from/zstd"
  cat "$parts"/[0-9]*/part.* | "$from/zstd" -dc | tar xf - && touch .parts
  python3 -m pip install -q --no-index --no-deps --no-compile --target site peer/*.whl
  mkdir -p site/mlx/lib && ln -sf "$here/mlx/lib/libmlx.so" site/mlx/lib/ && ln -sfn "$here/mlx_cuda_13.libs" site/mlx_cuda_13.libs
fi
rm -rf lib; "$from/zstd" -dc "$from/list.tar.zst" | tar xf -
mkdir -p "$bundle/mlx" "$bundle/nvidia/cu13/lib"
ln -sfn "$here/mlx/include" "$bundle/mlx/include"; mkdir -p "$bundle/mlx/lib"
ln -f mlx/lib/libmlx.so "$bundle/mlx/lib/libmlx.so"; ln -sfn "$here/mlx_cuda_13.libs" "$bundle/mlx_cuda_13.libs"
for name in libcublasLt.so.13 libnvrtc-builtins.so.13.0; do ln -sf "$(find "$nvidia" -name $name | head -1)" "$bundle/nvidia/cu13/lib/"; done
ln -sf "$(find "$nvidia" -name libnvrtc.so.13 | head -1)" "$bundle/nvidia/cu13/lib/libnvrtc-real.so"
cp nvrtc_count.so "$bundle/nvidia/cu13/lib/libnvrtc.so.13"
cp traps/* "$bundle/nvidia/cu13/lib/"  # end the process when MLX calls cuDNN, cuFFT, cuSOLVER or NCCL
export HOME=$here/home MLXCEL_NVRTC_LOG=$here/nvrtc.log MLXCEL_BUNDLE=$here/lib MLXCEL_TEST_STRICT=1 MLXCEL_CACHE=$here
mkdir -p "$HOME"; : > "$MLXCEL_NVRTC_LOG"

# ---- Steps --------------------------------------------------------------------------------------------------------
steps=("$@")
wanted() { [ ${#steps[@]} = 0 ] && return 0; local s; for s in "${steps[@]}"; do [ "$s" = "$1" ] && return 0; done; return 1; }
title() { echo; echo "== $1"; }
# check NAME SECONDS TEXT COMMAND...: the command ends with 0 (with 1 where NAME begins with "refuses"), and what it says holds TEXT.
check() {
  local name=$1 limit=$2 text=$3 start rc want=0; shift 3
  [[ $name == refuses* ]] && want=1
  start=$(date +%s%N)
  timeout "$limit" "$@" > "$logs/$name.log" 2>&1; rc=$?
  if [ $rc = $want ] && grep -qE -e "$text" "$logs/$name.log"; then printf 'ok    '; else printf 'FAIL  '; failed+=("$name"); fi
  printf '%-24s %5.1f s\n' "$name" "$(( ($(date +%s%N) - start) / 1000000 ))e-3"
}
show() { sed "s/^/      /" "$logs/$1.log" | tail -"${2:-12}"; }
compiled() { wc -l < "$MLXCEL_NVRTC_LOG"; }
fresh() { rm -rf "$HOME/.cache/mlxcel"; : > "$MLXCEL_NVRTC_LOG"; }

echo "mlxcel $(cat "$from/commit"), $(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)"
"$here/mlxcel" --version

if wanted doctor; then
  title "The GPU is found"
  check doctor 60 "uses +cuda:0" ./mlxcel doctor --device cuda -m models/*.gguf; show doctor 30
  uuid=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -1)
  check by_number 60 "uses +cuda:0" ./mlxcel doctor --device cuda:0
  check by_uuid 60 "uses +cuda:0" ./mlxcel doctor --device "$uuid"
  check refuses_number 60 "there is no GPU cuda:7, only cuda:0 \(" ./mlxcel doctor --device cuda:7
  check hidden 60 "computing on the CPU: CUDA_VISIBLE_DEVICES is" env CUDA_VISIBLE_DEVICES= ./mlxcel generate -m models/*.gguf -p Hi -n 4; show hidden 3
fi

if wanted first; then
  title "The first start on a machine, and the second: compilations by NVRTC"
  fresh
  check first_start 60 "first token" ./mlxcel generate -m models/*.gguf --device cuda -p Hi -n 16 -v
  show first_start 8; echo "      $(compiled) compilations: $(tr '\n' ';' < "$MLXCEL_NVRTC_LOG")"
  : > "$MLXCEL_NVRTC_LOG"
  check second_start 60 "first token" ./mlxcel generate -m models/*.gguf --device cuda -p Hi -n 16
  show second_start 1; echo "      $(compiled) compilations"; [ "$(compiled)" = 0 ] || failed+=("second_start_compiles")
  python3 - "$logs/first_start.log" <<'P' || failed+=("first_token_over_3_s")
import re,sys
sys.exit(float(re.search(r'first token after ([\d.]+) s', open(sys.argv[1]).read()).group(1)) > 3)
P
  check generate 60 "The capital of France is Paris" ./mlxcel generate -m models/*.gguf --device cuda -p "What is the capital of France?"; show generate 3
  check chat 60 "Paris" bash -c 'printf "What is the capital of France?\nAnd of Italy?\n/exit\n" | ./mlxcel chat -m models/*.gguf --device cuda -n 40'; show chat 6
  check sampled 60 "first token" ./mlxcel generate -m models/*.gguf --device cuda -p "Write a poem." -n 100 --temp 0.8 --top-p 0.9 --top-k 40 --min-p 0.02 --repetition-penalty 1.1 --seed 7
  long=$(printf ' word%.0s' $(seq 3000))
  check long_prompt 60 "3[0-9]{3} prompt tokens" ./mlxcel generate -m models/*.gguf --device cuda --no-chat-template -p "$long" -n 8; show long_prompt 1
  echo "      $(compiled) compilations by these: $(tr '\n' ';' < "$MLXCEL_NVRTC_LOG")"
  cp "$MLXCEL_NVRTC_LOG" "$logs/nvrtc_first.log"
fi

if wanted ops; then
  title "Every op against its definition (C++), on the GPU"
  for t in ops sample state weights handles program gpu; do
    check "cpp_$t" 90 "checks, 0 failures" env MLX_PTX_CACHE_DIR=$here/ptx MLX_ENABLE_TF32=0 MLX_CUDA_USE_CUDNN_SDPA=0 MLX_CUDA_GRAPH_CACHE_SIZE=4000 \
      MLX_ENABLE_CACHE_THRASHING_CHECK=0 MLXSHIM_TEST_DEVICE=cuda LD_LIBRARY_PATH="$bundle" "tests/${t}_test"
    grep -E "FAILED|failures$" "$logs/cpp_$t.log" | sed 's/^/      /'
  done
  cp "$MLXCEL_NVRTC_LOG" "$logs/nvrtc_ops.log"
fi

if wanted goldens; then
  title "What mlx-lm computes: greedy tokens and logits of all goldens, in f32 and in the models' own types"
  : > "$MLXCEL_NVRTC_LOG"
  check engine 200 "^PASS" bash -c "cd src/runtime/engine && MLXCEL_TEST_DEVICE=cuda '$here/go/engine.test' -test.v -test.run '${ENGINE_TESTS:-Tiny|SmolLM2|OnGPU|ForGPU}'"
  grep -cE "^ *--- PASS" "$logs/engine.log" | sed 's/^/      passed: /'; grep -E "^ *--- (FAIL|SKIP)|Error:|panic" "$logs/engine.log" | head -30
  echo "      $(compiled) compilations: $(tr '\n' ';' < "$MLXCEL_NVRTC_LOG")"
fi

if wanted memory; then
  title "Memory"
  [ -e checkpoint/config.json ] || python3 "$from/checkpoint.py" checkpoint
  check load_4gb 90 "load_bytes_per_s" ./mlxcel bench -m checkpoint --device cuda --prompt 512 -n 32 --rounds 1 --context 8192 --json
  python3 - "$logs/load_4gb.log" <<'P' || failed+=("load_4gb_figures")
import json,sys
r=json.load(open(sys.argv[1]))
print(f"      {r['weight_bytes']/1e9:.2f} GB loaded in {r['load_s']:.2f} s, {r['load_bytes_per_s']/1e9:.2f} GB/s; host memory of the process {r['process_peak_bytes']/1e9:.2f} GB at most; weights left in host memory {r['host_weight_bytes']} bytes; device memory {r['device_peak_bytes']/1e9:.2f} GB at most")
sys.exit(not (r['load_bytes_per_s']>1e9 and r['process_peak_bytes']<1.5e9 and r['host_weight_bytes']==0))
P
  check refuses_too_large 60 "does not fit into the GPU's memory: it needs .* GB for weights" ./mlxcel bench --device cuda --random 8b --bits 16 --gpu-memory 0.05; show refuses_too_large 2
  check two_at_once 90 "median.*median" bash -c './mlxcel bench --device cuda --random 4b --rounds 3 > a & ./mlxcel bench --device cuda --random 0.6b --rounds 3 > b; wait %1 && echo $(cat a b)'
fi

if wanted little; then
  title "A GPU with 8 GB left, and shares of a large one: a model of 8 billion weights in 4 bits"
  coproc ballast { python3 "$from/ballast.py" 8000000000; }
  read -r left <&"${ballast[0]}"; echo "      $left"
  for shape in 8b 4b; do
    check little_$shape 60 median ./mlxcel bench --device cuda --random $shape --prompt 2048 -n 64 --rounds 3; grep -E "^(median|memory)" "$logs/little_$shape.log" | sed 's/^/      /'
  done
  check refuses_little 60 "does not fit into the GPU's memory" ./mlxcel bench --device cuda --random 8b --bits 16; show refuses_little 2
  pid=$ballast_PID; eval "exec ${ballast[1]}>&-"; wait "$pid"
  for share in 0.054 0.072; do
    check "share_$share" 60 median ./mlxcel bench --device cuda --random 8b --gpu-memory $share --prompt 2048 -n 64 --rounds 3; grep -E "^(median|memory)" "$logs/share_$share.log" | sed 's/^/      /'
  done
  # Room that is promised and then gone: the ballast comes while the server answers. The request fails, and the server goes on.
  ./mlxcel-server --device cuda -m models/*.gguf --port 18099 -q > "$logs/server_oom.log" 2>&1 & server=$!
  ask() { curl -s -m 60 127.0.0.1:18099/v1/chat/completions -d "{\"messages\":[{\"role\":\"user\",\"content\":\"$1\"}],\"max_tokens\":8}"; }
  for _ in $(seq 100); do curl -sf 127.0.0.1:18099/health > /dev/null && break; sleep .2; done
  coproc ballast { python3 "$from/ballast.py" 30000000; }
  read -r left <&"${ballast[0]}"; echo "      $left"
  export -f ask
  check out_of_memory 60 '"error":.*(OUT_OF_MEMORY|out of memory)' bash -c 'ask "$(printf "word%.0s " $(seq 6000))"'; cut -c1-300 "$logs/out_of_memory.log" | sed 's/^/      /'
  pid=$ballast_PID; eval "exec ${ballast[1]}>&-"; wait "$pid"
  check after_oom 60 '"content"' bash -c 'ask Hi'
  kill "$server"; wait "$server"
fi

if wanted lost; then
  title "A GPU that is lost after so many calls of the driver: one sentence, no crash, and nothing waits for ever"
  MLXCEL_REAL_DRIVER=$(ldconfig -p | awk '/libcuda.so.1 .*x86-64/ { print $NF; exit }'); export MLXCEL_REAL_DRIVER
  # lost CALLS: what became of a generation whose driver fails from the call after these on.
  lost() {
    local log="$logs/lost_$1.log" rc
    LD_LIBRARY_PATH=$here/lost MLXCEL_LOSE_AFTER=$1 timeout 60 ./mlxcel generate --device cuda -m models/*.gguf -p "What is the capital of France?" > "$log" 2>&1; rc=$?
    if [ $rc = 0 ] && grep -q Paris "$log"; then echo "answers"
    elif [ $rc = 1 ] && [ "$(grep -c '^mlxcel: ' "$log")" -le 2 ] && tail -1 "$log" | grep -qE '^mlxcel: .*(GPU|device|driver)' && ! grep -qE 'terminate called|SIG[A-Z]+|^goroutine|^panic' "$log"; then echo "says so"
    else echo "WRONG, rc $rc"; fi
  }
  export -f lost; export here logs
  start=$(date +%s)
  for calls in 0 10 100 200 400 600 800 1000 1300 1600 2000 2500 3000 3500 4000 5000 6000 8000 10000 15000 20000 30000 50000 1000000; do echo $calls; done |
    xargs -P 4 -I% bash -c 'echo "% $(lost %): $(tail -1 "$logs/lost_%.log" | cut -c1-220)"' | sort -n > "$logs/lost.log"
  sed 's/^/      /' "$logs/lost.log"; echo "      $(($(date +%s) - start)) s"
  { ! grep -q WRONG "$logs/lost.log" && grep -q "^1000000 answers" "$logs/lost.log" && [ "$(grep -c 'says so' "$logs/lost.log")" -ge 10 ]; } || failed+=("lost")

  # While a server answers two clients: both are told, or cut off, and the server ends and says why.
  rm -f "$here/lose"
  LD_LIBRARY_PATH=$here/lost MLXCEL_LOSE_FILE=$here/lose ./mlxcel-server --device cuda -m models/*.gguf --port 18097 -q > "$logs/lost_server.log" 2>&1 & server=$!
  for _ in $(seq 100); do curl -sf 127.0.0.1:18097/health > /dev/null && break; sleep .2; done
  endless() { curl -sN -m 60 127.0.0.1:18097/v1/completions -d '{"prompt":"Once upon a time","stream":true,"max_tokens":7000,"ignore_eos":true}' > "$logs/lost_client$1.log"; }
  endless 1 & one=$!; endless 2 & two=$!
  sleep 1; touch "$here/lose"; start=$(date +%s%N)
  (sleep 60; kill -9 "$server") & guard=$!
  wait "$server"; rc=$?; kill "$guard"; wait "$one" "$two"
  echo "      the server ended with $rc after $((($(date +%s%N) - start) / 1000000)) ms: $(tail -1 "$logs/lost_server.log" | cut -c1-300)"
  for i in 1 2; do echo "      client $i: $(grep -c '^data: ' "$logs/lost_client$i.log") pieces, the last $(grep '^data: ' "$logs/lost_client$i.log" | tail -1 | cut -c1-200)"; done
  { [ $rc = 1 ] && tail -1 "$logs/lost_server.log" | grep -qE '(GPU|device) is lost' && grep -q '^data: ' "$logs/lost_client1.log" && ! grep -qE 'terminate called|^goroutine|^panic' "$logs/lost_server.log"; } || failed+=("lost_server_end")
fi

if wanted programs; then
  title "The programs of users: selftest, and the server with 8 clients"
  check selftest 200 "every token is right" ./mlxcel selftest --device cuda -m models/*.gguf --report "$logs/selftest.txt"; show selftest 60
  ./mlxcel-server --device cuda -m models/*.gguf --port 18098 --parallel 8 -q > "$logs/server.log" 2>&1 & server=$!
  for _ in $(seq 100); do curl -sf 127.0.0.1:18098/health > /dev/null && break; sleep .2; done
  check stream 60 'DONE' curl -sN 127.0.0.1:18098/v1/chat/completions -d '{"messages":[{"role":"user","content":"What is the capital of France?"}],"stream":true,"max_tokens":20}'
  check load 100 "^ +8 +[0-9]+ +0 " ./load --url http://127.0.0.1:18098 --clients 1,8 --tokens 64 --time 10s; show load 3
  kill "$server"; wait "$server"
fi

if wanted bench; then
  title "Speed: mlxcel bench --random SHAPE --bits BITS --prompt 2048 -n 128 --rounds 5"
  : > "$MLXCEL_NVRTC_LOG"
  for shape in 0.6b 4b 8b 30b-a3b; do for bits in 4 8 16; do
    check "bench_${shape}_$bits" 60 median ./mlxcel bench --device cuda --random $shape --bits $bits --prompt 2048 -n 128 --rounds 5
    grep -E "^(load|first|median|memory)" "$logs/bench_${shape}_$bits.log" | sed 's/^/      /'
  done; done
  echo "      $(compiled) compilations: $(tr '\n' ';' < "$MLXCEL_NVRTC_LOG")"
fi

if wanted peer; then
  title "Speed of mlx-lm: peer.py SHAPES 2048 128 5, with cuDNN and MLX's own defaults"
  mlx_lm=(env PYTHONPATH="$here/site" LD_LIBRARY_PATH="$(ls -d "$nvidia"/*/lib | tr '\n' ':')$here/mlx/lib:$here/mlx_cuda_13.libs" python3 "$from/peer.py")
  check peer 200 "mlx-lm 8b" "${mlx_lm[@]}" 0.6b 4b 8b 2048 128 5; show peer 4

  # A machine's host can become twice as slow within minutes, which the small shape feels most: in turns both get the same host.
  title "0.6b in turns: mlxcel bench and mlx-lm, a process each, five times, 3 rounds a process"
  for turn in 1 2 3 4 5; do
    check "turn_${turn}_mlxcel" 60 median ./mlxcel bench --device cuda --random 0.6b --bits 4 --prompt 2048 -n 128 --rounds 3; grep ^median "$logs/turn_${turn}_mlxcel.log" | sed 's/^/      /'
    check "turn_${turn}_mlx_lm" 60 "mlx-lm 0.6b" "${mlx_lm[@]}" 0.6b 2048 128 3; show "turn_${turn}_mlx_lm" 1
  done
  python3 - "$logs" <<'P' || failed+=("turn_medians")
import glob,re,statistics,sys
def medians(name, words):  # of the turns: prompt and decode tokens a second
    rows = [re.search(words, open(f).read()).groups() for f in sorted(glob.glob(f"{sys.argv[1]}/turn_*_{name}.log"))]
    return [statistics.median(map(float, column)) for column in zip(*rows)]
ours = medians("mlxcel", r"(?m)^median +([\d.]+) tok/s prompt, ([\d.]+) tok/s decode")
peer = medians("mlx_lm", r"([\d.]+) tok/s prompt, ([\d.]+) tok/s decode")
print("      medians of the turns: " + ", ".join(f"{what} {a:.0f} to {b:.0f} ({a/b:.2f})" for what, a, b in zip(("prompt", "decode"), ours, peer)))
P
fi

tar -C "$logs/.." -czf "$logs.tar.gz" "$(basename "$logs")"  # for machines that give few files back
echo
if [ ${#failed[@]} = 0 ]; then echo "All steps passed."; else echo "FAILED: ${failed[*]}"; exit 1; fi
