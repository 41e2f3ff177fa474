// The kernels of our own, in plain CUDA C++ without any header, so that NVRTC needs no folder of headers and about
// a second. They take the place of MLX ops that MLX would compile at run time, at a second or two apiece, or that take
// several of its ops. Element types are arguments: 0 f32, 1 f16, 2 bf16.
//
// What takes long to compile is compiled for the models that need it: with ATTENTION, TYPE and WIDTH, with EXPERTS, TYPE,
// MODE and BITS, or with DEQUANTIZE, MODE and BITS. Without these names it is all the rest.

typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

#if !defined(ATTENTION) && !defined(EXPERTS) && !defined(DEQUANTIZE)
#define BASE
#endif

__device__ float to_float(u16 bits, int dtype) {
  if (dtype == 2) return __uint_as_float(u32(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ u16 to_half(float value, int dtype) {
  u16 bits;
  if (dtype == 2) {
    u32 all = __float_as_uint(value);
    if ((all & 0x7fffffff) > 0x7f800000) return 0x7fff;  // not a number
    return u16((all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ float load(const void* data, i64 i, int dtype) {
  return dtype == 0 ? static_cast<const float*>(data)[i] : to_float(static_cast<const u16*>(data)[i], dtype);
}

__device__ void store(void* data, i64 i, int dtype, float value) {
  if (dtype == 0)
    static_cast<float*>(data)[i] = value;
  else
    static_cast<u16*>(data)[i] = to_half(value, dtype);
}

// The value as the type holds it.
__device__ float rounded(float value, int dtype) { return dtype == 0 ? value : to_float(to_half(value, dtype), dtype); }

// ---- All threads of a block together --------------------------------------------------------------------------------

// The sum of everybody's value, for everybody.
__device__ float block_sum(float value) {
  __shared__ float parts[33];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    float sum = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 0) parts[32] = sum;
  }
  __syncthreads();
  return parts[32];
}

// The sum of the values of this thread and those before it.
__device__ float block_scan(float value) {
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 1; step < 32; step *= 2) {
    float before = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += before;
  }
  __syncthreads();
  if (lane == 31) parts[warp] = value;
  __syncthreads();
  float before = 0;
  for (int w = 0; w < warp; w++) before += parts[w];
  return before + value;
}

// The largest value with the lowest place among equals, for everybody.
struct Best {
  float value;
  int place;
};
__device__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.place < a.place) ? b : a;
}
__device__ Best block_best(Best best) {
  __shared__ Best parts[33];
  for (int step = 16; step > 0; step /= 2)
    best = better(best, {__shfl_xor_sync(~0u, best.value, step), __shfl_xor_sync(~0u, best.place, step)});
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < blockDim.x / 32; w++) best = better(best, parts[w]);
    parts[32] = best;
  }
  __syncthreads();
  return parts[32];
}

__device__ bool is_number(float value) { return value == value; }

__device__ float lowest() { return __uint_as_float(0xff800000); }

// ---- Keys and values ------------------------------------------------------------------------------------------------

#ifdef BASE

// What the host calls KvSpan, with the memory of its caches [heads, capacity, dim].
struct Span {
  void *keys, *values;
  i64 capacity, first_row, rows, position;
};
constexpr int kSpans = 32;
struct Spans {
  Span spans[kSpans];
};

// One side of the write: rows [T, heads, units] of Unit to the caches.
template <class Unit>
__device__ void write_rows(const u8* rows, i64 row_stride, i64 head_stride, int heads, int units, bool keys,
                           const Spans& all, int count) {
  for (int s = 0; s < count; s++) {
    const Span& span = all.spans[s];
    Unit* cache = static_cast<Unit*>(keys ? span.keys : span.values);
    const i64 total = span.rows * heads * units;
    for (i64 i = blockIdx.x * i64(blockDim.x) + threadIdx.x; i < total; i += i64(gridDim.x) * blockDim.x) {
      const i64 unit = i % units, head = i / units % heads, row = i / units / heads;
      const u8* from = rows + (span.first_row + row) * row_stride + head * head_stride;
      cache[(head * span.capacity + span.position + row) * units + unit] = reinterpret_cast<const Unit*>(from)[unit];
    }
  }
}

// Strides in bytes. blockIdx.y is 0 for keys, 1 for values.
#define KV_WRITE(name, Unit)                                                                                      \
  extern "C" __global__ void name(const u8* k, i64 k_row, i64 k_head, int k_units, const u8* v, i64 v_row, i64 v_head, \
                                  int v_units, int heads, int count, const Spans all) {                           \
    if (blockIdx.y == 0)                                                                                          \
      write_rows<Unit>(k, k_row, k_head, heads, k_units, true, all, count);                                       \
    else                                                                                                          \
      write_rows<Unit>(v, v_row, v_head, heads, v_units, false, all, count);                                      \
  }
KV_WRITE(kv_write_16, uint4)
KV_WRITE(kv_write_2, u16)

// ---- Weights that are made up ---------------------------------------------------------------------------------------

__device__ u32 scramble(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  return x ^ x >> 16;
}

// kind 0..2: floats in [-1/32, 1/32) of that type; 3: any bytes, `count` of them in words of 4.
extern "C" __global__ void fill_random(void* data, i64 count, int kind, u32 seed) {
  for (i64 i = blockIdx.x * i64(blockDim.x) + threadIdx.x; i < count; i += i64(gridDim.x) * blockDim.x) {
    const u32 bits = scramble(u32(i) ^ scramble(u32(i >> 32) + seed));
    if (kind == 3)
      static_cast<u32*>(data)[i] = bits;
    else
      store(data, i, kind, (float(bits >> 8) * (1.f / 16777216.f) - 0.5f) * (1.f / 16.f));
  }
}

// ---- Ops ------------------------------------------------------------------------------------------------------------

// ids [T], w packed [V, width * bits / 32], scales and biases [V, width / group] -> [T, width].
extern "C" __global__ void embed(const int* ids, const u32* w, const void* scales, const void* biases, void* out,
                                 int width, int bits, int group, int scale_dtype, int out_dtype) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const i64 row = ids[blockIdx.x], words = i64(width) * bits / 32;
  const int at = i * bits, shift = at % 32;
  u32 q = w[row * words + at / 32] >> shift;
  if (shift + bits > 32) q |= w[row * words + at / 32 + 1] << (32 - shift);
  q &= (1u << bits) - 1;
  const i64 g = row * (width / group) + i / group;
  const float value = float(q) * load(scales, g, scale_dtype) + load(biases, g, scale_dtype);
  store(out, i64(blockIdx.x) * width + i, out_dtype, value);
}

// rows [R], x [T, width] -> [R, width]; x may be of another type.
extern "C" __global__ void take_rows(const int* rows, const void* x, void* out, int width, int dtype, int out_dtype) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i < width)
    store(out, i64(blockIdx.x) * width + i, out_dtype, load(x, i64(rows[blockIdx.x]) * width + i, dtype));
}

// The same for rows of any type, of `bytes` bytes.
extern "C" __global__ void take_bytes(const int* rows, const u8* x, u8* out, int bytes) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i < bytes) out[i64(blockIdx.x) * bytes + i] = x[i64(rows[blockIdx.x]) * bytes + i];
}

// tokens [rows, width], slots [rows], stored [..] -> tokens.
extern "C" __global__ void load_tokens(const int* tokens, const int* slots, const int* stored, int* out, int count,
                                       int width, int last) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = tokens[i] == last ? stored[slots[i / width]] : tokens[i];
}

// stored [count], slots [rows], tokens [rows] -> stored.
extern "C" __global__ void store_tokens(const int* stored, const int* slots, const int* tokens, int* out, int count,
                                        int rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int token = stored[i];
  for (int r = 0; r < rows; r++)
    if (slots[r] == i) token = max(tokens[r], 0);
  out[i] = token;
}

// gate and up [rows, width], rows so many elements apart -> silu(gate) * up.
extern "C" __global__ void swiglu(const void* gate, const void* up, void* out, int gate_stride, int up_stride, int width,
                                  int dtype) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const i64 row = blockIdx.x;
  const float g = load(gate, row * gate_stride + i, dtype), u = load(up, row * up_stride + i, dtype);
  store(out, row * width + i, dtype, g / (1.f + __expf(-g)) * u);
}

// The same of two runs of columns of x [rows, stride].
extern "C" __global__ void swiglu_joined(const void* x, void* out, int stride, int width, int dtype, int gate_at,
                                         int up_at) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const i64 row = blockIdx.x;
  const float g = load(x, row * stride + gate_at + i, dtype), u = load(x, row * stride + up_at + i, dtype);
  store(out, row * width + i, dtype, g / (1.f + __expf(-g)) * u);
}

// a, b [rows, width], w [width] -> a + b, and that normalized. One block a row.
extern "C" __global__ void add_norm(const void* a, const void* b, const void* w, void* sums, void* out, int width,
                                    int dtype, float eps) {
  const i64 row = i64(blockIdx.x) * width;
  float squares = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float sum = rounded(load(a, row + i, dtype) + load(b, row + i, dtype), dtype);
    store(sums, row + i, dtype, sum);
    squares += sum * sum;
  }
  const float by = rsqrtf(block_sum(squares) / width + eps);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    store(out, row + i, dtype, load(sums, row + i, dtype) * by * load(w, i, dtype));
}

// The way from the joined product x [T, ..] to attention: its queries and keys are normalized where there are weights for
// that, and turned; queries go to q [T, heads, dim], keys and values to the caches. One warp for a head of a token.
constexpr int kMostDim = 256;
extern "C" __global__ void attention_in(const void* x, const int* positions, const void* q_norm, const void* k_norm,
                                        const float* periods, void* q, int width, int q_at, int k_at, int v_at, int heads,
                                        int kv_heads, int dim, int dims, int traditional, float log2_base, float scale,
                                        float mscale, float q_eps, float k_eps, int dtype, int count, const Spans all) {
  __shared__ float rows[4][kMostDim];
  const int lane = threadIdx.x % 32, head = blockIdx.y * 4 + threadIdx.x / 32;
  if (head >= heads + 2 * kv_heads) return;
  const i64 token = blockIdx.x;
  const bool is_q = head < heads, is_k = !is_q && head < heads + kv_heads;
  const int kv_head = is_q ? 0 : is_k ? head - heads : head - heads - kv_heads;
  const i64 from = token * width + (is_q ? q_at + head * dim : (is_k ? k_at : v_at) + kv_head * dim);
  float* row = rows[threadIdx.x / 32];
  float squares = 0;
  for (int i = lane; i < dim; i += 32) {
    row[i] = load(x, from + i, dtype);
    squares += row[i] * row[i];
  }
  if (const void* norm = is_q ? q_norm : is_k ? k_norm : nullptr) {
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    const float by = rsqrtf(squares / dim + (is_q ? q_eps : k_eps));
    for (int i = lane; i < dim; i += 32) row[i] = rounded(row[i] * by * load(norm, i, dtype), dtype);
  }
  if (is_q || is_k) {
    __syncwarp();
    const int half = dims / 2;
    for (int i = lane; i < half; i += 32) {
      const int first = traditional ? 2 * i : i, second = traditional ? 2 * i + 1 : i + half;
      const float turn = periods ? 1.f / periods[i] : exp2f(-(float(i) / float(half)) * log2_base);
      const float angle = float(positions[token]) * scale * turn, c = cosf(angle), s = sinf(angle);
      const float a = mscale == 1 ? row[first] : rounded(row[first] * mscale, dtype);
      const float b = mscale == 1 ? row[second] : rounded(row[second] * mscale, dtype);
      row[first] = a * c - b * s;
      row[second] = a * s + b * c;
    }
  }
  __syncwarp();
  void* to = q;
  i64 at = (token * heads + head) * dim;
  if (!is_q) {
    int s = 0;
    while (s + 1 < count && token >= all.spans[s].first_row + all.spans[s].rows) s++;
    const Span& span = all.spans[s];
    to = is_k ? span.keys : span.values;
    at = (kv_head * span.capacity + span.position + token - span.first_row) * dim;
  }
  for (int i = lane; i < dim; i += 32) store(to, at + i, dtype, row[i]);
}

// logits [rows, count] -> the first largest of each row, -1 where none is a number. One block a row.
extern "C" __global__ void argmax(const float* logits, int* out, int count) {
  const float* row = logits + i64(blockIdx.x) * count;
  Best best{lowest(), count};
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    if (is_number(row[i])) best = better(best, {row[i], i});
  best = block_best(best);
  if (threadIdx.x == 0) out[blockIdx.x] = best.place < count ? best.place : -1;
}

// logits [rows, count], order [rows, count] by falling logit, settings [rows, 5] -> tokens. One block a row. Every
// filter keeps a head of the order.
extern "C" __global__ void sample(const float* logits, const u32* order, const float* settings, int* out, int count) {
  __shared__ int found;
  const float* row = logits + i64(blockIdx.x) * count;
  order += i64(blockIdx.x) * count;
  settings += i64(blockIdx.x) * 5;
  const float temperature = settings[0], top_p = settings[2], min_p = settings[3], u = settings[4];
  const int kept_k = settings[1] > 0 ? min(int(settings[1]), count) : count;
  const float best = row[order[0]];
  if (!is_number(best)) {  // those that are none come last
    if (threadIdx.x == 0) out[blockIdx.x] = -1;
    return;
  }
  auto weight = [&](int place, float heat) {
    const float logit = row[order[place]];
    return is_number(logit) ? __expf((logit - best) / heat) : 0;
  };

  if (temperature <= 0) {
    if (threadIdx.x == 0) out[blockIdx.x] = int(order[0]);
    return;
  }
  // The first place at which cumulative weights of exp((logit - best) / heat) pass a share of their sum; `end` if none.
  auto passing = [&](int end, float heat, float share, bool reaching) {
    float sum = 0;
    for (int i = threadIdx.x; i < end; i += blockDim.x) sum += weight(i, heat);
    const float want = block_sum(sum) * share;
    float before = 0;
    if (threadIdx.x == 0) found = end;
    __syncthreads();
    for (int start = 0; start < end; start += blockDim.x) {
      const int i = start + threadIdx.x;
      const float mine = i < end ? weight(i, heat) : 0;
      const float upto = before + block_scan(mine);
      if (i < end && (reaching ? upto >= want : upto > want)) atomicMin(&found, i);
      __syncthreads();
      if (found < end) break;
      before += block_sum(mine);
    }
    return found;
  };
  int kept = kept_k;
  if (top_p < 1) kept = max(1, min(kept, passing(kept_k, 1, top_p, true) + (top_p > 0)));
  if (min_p > 0) {
    float likely = 0;
    for (int i = threadIdx.x; i < kept; i += blockDim.x) likely += weight(i, 1) >= min_p;
    kept = max(1, int(block_sum(likely)));
  }
  const int choice = min(passing(kept, temperature, u, false), kept - 1);
  if (threadIdx.x == 0) out[blockIdx.x] = int(order[choice]);
}

// logits [rows, count], history [rows, width] (-1: none), penalties [rows, 3] -> logits. One block a row.
extern "C" __global__ void penalize(const float* logits, const int* history, const float* penalties, float* out,
                                    int count, int width) {
  const i64 row = blockIdx.x;
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[row * count + i] = logits[row * count + i];
  __syncthreads();
  history += row * width, penalties += row * 3;
  for (int j = threadIdx.x; j < width; j += blockDim.x) {
    const int token = history[j];
    if (token < 0) continue;
    int times = 0;
    bool first = true;
    for (int other = 0; other < width; other++)
      if (history[other] == token) times++, first = first && other >= j;
    if (!first) continue;
    const float logit = logits[row * count + token];
    const float scaled = logit > 0 ? logit / penalties[0] : logit * penalties[0];
    out[row * count + token] = scaled - (float(times) * penalties[1] + penalties[2]);
  }
}

// logits [rows, count], ids [rows, width] (-1: none), values [rows, width] -> logits. One block a row.
extern "C" __global__ void bias(const float* logits, const int* ids, const float* values, float* out, int count,
                                int width) {
  const i64 row = blockIdx.x;
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[row * count + i] = logits[row * count + i];
  __syncthreads();
  ids += row * width, values += row * width;
  for (int j = threadIdx.x; j < width; j += blockDim.x) {
    if (ids[j] < 0) continue;
    float sum = 0;
    bool first = true;
    for (int other = 0; other < width; other++)
      if (ids[other] == ids[j]) sum += values[other], first = first && other >= j;
    if (first) out[row * count + ids[j]] += sum;
  }
}

// logits [T, experts] -> the k largest of their softmax, largest first: indices and weights [T, k]. One warp a token;
// experts are at most 32 * kMine.
constexpr int kMine = 32;
extern "C" __global__ void route(const void* logits, int* indices, void* weights, int experts, int k, int normalize,
                                 int dtype, int out_dtype) {
  const i64 token = blockIdx.x;
  const int lane = threadIdx.x;
  float mine[kMine];
  float most = lowest();
  for (int i = 0; i < kMine; i++) {
    const int expert = i * 32 + lane;
    mine[i] = expert < experts ? load(logits, token * experts + expert, dtype) : lowest();
    most = fmaxf(most, mine[i]);
  }
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  float sum = 0;
  for (int i = 0; i < kMine; i++) {
    mine[i] = i * 32 + lane < experts ? __expf(mine[i] - most) : -1;
    if (mine[i] > 0) sum += mine[i];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  float picked = 0, weight = 0;
  for (int n = 0; n < k; n++) {
    Best best{-2, experts};
    for (int i = 0; i < kMine; i++) best = better(best, {mine[i], i * 32 + lane});
    for (int step = 16; step > 0; step /= 2)
      best = better(best, {__shfl_xor_sync(~0u, best.value, step), __shfl_xor_sync(~0u, best.place, step)});
    for (int i = 0; i < kMine; i++)
      if (i * 32 + lane == best.place) mine[i] = -1;
    picked += best.value;
    if (lane == n) weight = best.value;
    if (lane == 0) indices[token * k + n] = min(best.place, experts - 1);  // where nothing is a number
  }
  if (lane < k) store(weights, token * k + lane, out_dtype, weight / (normalize ? picked : sum));
}

#endif

// ---- Quantized numbers ----------------------------------------------------------------------------------------------

// Small floats become large ones' exponent and fraction, off by a power of two; that makes their subnormals right too.
__device__ float from_e2m1(u32 q) {
  return __uint_as_float((q & 8) << 28 | (q & 7) << 22) * __uint_as_float(0x7e800000);  // 2^126
}
__device__ float from_e4m3(u32 q) {
  return __uint_as_float((q & 128) << 24 | (q & 127) << 20) * __uint_as_float(0x7b800000);  // 2^120
}
__device__ float from_e8m0(u32 q) { return __uint_as_float(q ? q << 23 : 1u << 22); }

// Quantization modes: 0 affine, 1 mxfp4, 2 mxfp8, 3 nvfp4; 4: not quantized.
__device__ float group_scale(const void* scales, i64 at, int mode, int dtype) {
  if (mode == 0) return load(scales, at, dtype);
  const u32 q = static_cast<const u8*>(scales)[at];
  return mode == 3 ? from_e4m3(q) : from_e8m0(q);
}
__device__ float element(u32 q, int mode) { return mode == 0 ? float(q) : mode == 2 ? from_e4m3(q) : from_e2m1(q); }

#ifdef DEQUANTIZE

__device__ u32 pair_of(float first, float second, int dtype) {
  return to_half(first, dtype) | u32(to_half(second, dtype)) << 16;
}

// w packed, scales and biases one a group of 8 << shift -> 8 * eights numbers: eight at a time, and four times that by each
// thread.
extern "C" __global__ void dequantize(const u8* w, const void* scales, const void* biases, void* out, int eights, int shift,
                                      int scale_dtype, int dtype) {
  constexpr int bits = BITS, mode = MODE, kTimes = 4;
  const i64 first = blockIdx.x * i64(blockDim.x) * kTimes + threadIdx.x;
  unsigned long long packed[kTimes];
  float scale[kTimes], bias[kTimes];
#pragma unroll
  for (int t = 0; t < kTimes; t++) {
    const i64 at = first + t * blockDim.x;
    if (at >= eights) continue;
    const i64 byte = at * bits, group = at >> shift;
    if constexpr (bits == 8)
      packed[t] = *reinterpret_cast<const unsigned long long*>(w + byte);
    else if constexpr (bits == 4)
      packed[t] = *reinterpret_cast<const u32*>(w + byte);
    else if constexpr (bits == 2)
      packed[t] = *reinterpret_cast<const u16*>(w + byte);
    else {
      const u32* words = reinterpret_cast<const u32*>(w + byte / 4 * 4);
      const int begin = int(byte % 4) * 8;
      packed[t] = words[0];
      if (begin + 8 * bits > 32) packed[t] |= static_cast<unsigned long long>(words[1]) << 32;
      packed[t] >>= begin;
    }
    scale[t] = group_scale(scales, group, mode, scale_dtype);
    bias[t] = mode == 0 ? load(biases, group, scale_dtype) : 0;
  }
#pragma unroll
  for (int t = 0; t < kTimes; t++) {
    const i64 at = first + t * blockDim.x;
    if (at >= eights) continue;
    float value[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      value[i] = element(u32(packed[t] >> (i * bits)) & ((1u << bits) - 1), mode) * scale[t] + bias[t];
    if (dtype == 0) {
      float4* to = static_cast<float4*>(out) + 2 * at;
      to[0] = {value[0], value[1], value[2], value[3]};
      to[1] = {value[4], value[5], value[6], value[7]};
    } else {
      static_cast<uint4*>(out)[at] = {pair_of(value[0], value[1], dtype), pair_of(value[2], value[3], dtype),
                                      pair_of(value[4], value[5], dtype), pair_of(value[6], value[7], dtype)};
    }
  }
}

#endif

// ---- Experts ---------------------------------------------------------------------------------------------------------

#if defined(BASE) || defined(EXPERTS)
constexpr int kPairs = 128;  // of a token and an expert, that a block works on at most
#endif

#ifdef BASE

// x [T, K], or [T, k, K] with `own`, indices [T, k], w packed [E, N, K * bits / 32] and scales and biases [E, N, K / group]
// -> [T, k, N]. One warp for an output, blockIdx.x for a token and expert.
extern "C" __global__ void expert_product(const void* x, const int* indices, const u32* w, const void* scales,
                                          const void* biases, void* out, int width, int height, int k, int own, int mode,
                                          int bits, int group, int dtype, int scale_dtype) {
  const int n = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n >= height) return;
  const i64 pair = blockIdx.x, matrix_row = i64(indices[pair]) * height + n;
  const i64 x_at = (own ? pair : pair / k) * width, words = i64(width) * bits / 32, groups = width / group;
  const u32* row = w + matrix_row * words;
  float sum = 0;
  if (32 % bits == 0) {
    const int each = 32 / bits;
    const u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (int i = lane; i < words; i += 32) {
      u32 word = row[i];
      const i64 first = i64(i) * each, g = matrix_row * groups + first / group;
      float products = 0, inputs = 0;
      for (int j = 0; j < each; j++, word >>= bits) {
        const float value = load(x, x_at + first + j, dtype);
        products += element(word & mask, mode) * value;
        inputs += value;
      }
      sum += products * group_scale(scales, g, mode, scale_dtype);
      if (mode == 0) sum += inputs * load(biases, g, scale_dtype);
    }
  } else {
    for (int i = lane; i < width; i += 32) {
      const int at = i * bits, shift = at % 32;
      u32 q = row[at / 32] >> shift;
      if (shift + bits > 32) q |= row[at / 32 + 1] << (32 - shift);
      const i64 g = matrix_row * groups + i / group;
      const float value = float(q & ((1u << bits) - 1)) * load(scales, g, scale_dtype) + load(biases, g, scale_dtype);
      sum += value * load(x, x_at + i, dtype);
    }
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) store(out, pair * height + n, dtype, sum);
}

// x [T, k, width], weights [T, k] -> the sum over k of x by weight, [T, width].
extern "C" __global__ void combine(const void* x, const void* weights, void* out, int width, int k, int dtype,
                                   int weight_dtype) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const i64 token = blockIdx.x;
  float sum = 0;
  for (int j = 0; j < k; j++)
    sum += load(x, (token * k + j) * width + i, dtype) * load(weights, token * k + j, weight_dtype);
  store(out, token * width + i, dtype, sum);
}

// indices [count] of experts -> order [count], the places in indices by expert, and tiles [most, 3]: runs of up to kPairs
// of them, with expert, first place in the order and length, which is 0 at the end. One block of a thread an expert.
constexpr int kMostExperts = 1024;
extern "C" __global__ void sort_pairs(const int* indices, int* order, int* tiles, int count, int most) {
  __shared__ int counts[kMostExperts];
  const int expert = threadIdx.x;
  counts[expert] = 0;
  for (int i = threadIdx.x; i < most; i += blockDim.x) tiles[3 * i + 2] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) atomicAdd(&counts[indices[i]], 1);
  __syncthreads();
  const int mine = counts[expert], runs = (mine + kPairs - 1) / kPairs;  // floats count exactly up to 2^24
  const int first = int(block_scan(float(mine))) - mine, tile = int(block_scan(float(runs))) - runs;
  __syncthreads();
  counts[expert] = first;
  for (int r = 0; r < runs; r++) {
    int* to = tiles + 3 * (tile + r);
    to[0] = expert, to[1] = first + r * kPairs, to[2] = min(kPairs, mine - r * kPairs);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) order[atomicAdd(&counts[indices[i]], 1)] = i;
}

#endif

// ---- Matrix units ----------------------------------------------------------------------------------------------------

#if defined(ATTENTION) || defined(EXPERTS)  // for compute capability 8.0 and newer

// d += a * b, of 16 x 16 and 16 x 8 numbers of the type, which are f16 or bf16.
template <int dtype>
__device__ void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (dtype == 2)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

// Four matrices of 8 x 8 halves; each lane names a row of 16 bytes.
__device__ void load_matrices(u32 (&m)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row)));
}
__device__ void load_transposed(u32 (&m)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row)));
}

// Two numbers as the type has them, the first one in the lower half.
template <int dtype>
__device__ u32 pack(float first, float second) {
  u32 both;
  if constexpr (dtype == 2)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

// 16 bytes on their way to shared memory, or zeros.
__device__ void copy_async(u16* to, const u16* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Rows of shared memory have 16 bytes more than they need: then the same columns of eight rows lie in different banks.
constexpr int kPad = 8;

#endif

// ---- Attention of prompts --------------------------------------------------------------------------------------------

#ifdef ATTENTION

__device__ float exponential_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// q [rows, heads, dim], the queries at the end of a context, keys and values [kv_heads, capacity, dim] -> [rows, heads,
// dim]. Each warp of a block takes 16 queries of a head, and the block goes through the keys in tiles with a running
// maximum and sum, so that scores lie in no memory. blockIdx.x is the head; the late queries, which see the most, come first.
constexpr int kWarps = 4, kQueries = 16 * kWarps;

template <int dtype, int dim, int tile>
__device__ void attend(const u16* q, const u16* keys, const u16* values, u16* out, int rows, int heads, int kv_heads,
                       int context, int capacity, int window, float scale) {
  constexpr int kRow = dim + kPad;
  __shared__ __align__(16) u16 k_tile[tile * kRow];
  __shared__ __align__(16) u16 v_tile[tile * kRow];
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const int first = int(gridDim.y - 1 - blockIdx.y) * kQueries, head = blockIdx.x, start = context - rows;
  const i64 plane = i64(head / (heads / kv_heads)) * capacity * dim;
  keys += plane, values += plane;
  const int mine[2] = {first + int(threadIdx.x) / 32 * 16 + lane / 4, first + int(threadIdx.x) / 32 * 16 + lane / 4 + 8};

  u32 query[dim / 16][4];
#pragma unroll
  for (int k = 0; k < dim / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = mine[i % 2], column = k * 16 + i / 2 * 8 + quad * 2;
      query[k][i] = row < rows ? *reinterpret_cast<const u32*>(q + (i64(row) * heads + head) * dim + column) : 0;
    }

  auto fetch = [&](u16* to, const u16* from, int at) {
    for (int i = threadIdx.x; i < tile * dim / 8; i += 32 * kWarps) {
      const int key = at + i / (dim / 8), column = i % (dim / 8) * 8;
      copy_async(to + i / (dim / 8) * kRow + column, from + i64(min(key, context - 1)) * dim + column, key < context);
    }
  };
  const int end = min(context, start + first + kQueries);
  const int begin = window > 0 ? max(0, start + first - window + 1) / tile * tile : 0;
  const float by = scale * 1.4426950408889634f;  // exponentials are of 2
  float sums[dim / 8][4] = {}, most[2] = {lowest(), lowest()}, total[2] = {};
  fetch(k_tile, keys, begin);
  for (int at = begin; at < end; at += tile) {
    wait_for_copies();
    __syncthreads();  // the keys are there, and nobody reads the values before them any more
    fetch(v_tile, values, at);
    float scores[tile / 8][4] = {};
#pragma unroll
    for (int k = 0; k < dim / 16; k++)
#pragma unroll
      for (int n = 0; n < tile / 16; n++) {
        u32 m[4];
        load_matrices(m, k_tile + (n * 16 + lane / 16 * 8 + lane % 8) * kRow + k * 16 + lane / 8 % 2 * 8);
        multiply_add<dtype>(scores[2 * n], query[k], m[0], m[1]);
        multiply_add<dtype>(scores[2 * n + 1], query[k], m[2], m[3]);
      }
    wait_for_copies();
    __syncthreads();
    if (at + tile < end) fetch(k_tile, keys, at + tile);

    if (at + tile > start + first + 1 || (window > 0 && at <= start + first + kQueries - window))
#pragma unroll
      for (int n = 0; n < tile / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int key = at + n * 8 + quad * 2 + i % 2, position = start + mine[i / 2];
          if (key > position || (window > 0 && key <= position - window)) scores[n][i] = lowest();
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float now = most[r];
#pragma unroll
      for (int n = 0; n < tile / 8; n++) now = fmaxf(now, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      const float base = now == lowest() ? 0 : now * by, before = exponential_of_2(most[r] * by - base);
      most[r] = now;
      total[r] *= before;
#pragma unroll
      for (int n = 0; n < tile / 8; n++)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; i++) total[r] += scores[n][i] = exponential_of_2(scores[n][i] * by - base);
#pragma unroll
      for (int n = 0; n < dim / 8; n++) sums[n][2 * r] *= before, sums[n][2 * r + 1] *= before;
    }
#pragma unroll
    for (int k = 0; k < tile / 16; k++) {
      const float(&a)[4] = scores[2 * k], (&b)[4] = scores[2 * k + 1];
      const u32 shares[4] = {pack<dtype>(a[0], a[1]), pack<dtype>(a[2], a[3]), pack<dtype>(b[0], b[1]), pack<dtype>(b[2], b[3])};
#pragma unroll
      for (int n = 0; n < dim / 16; n++) {
        u32 m[4];
        load_transposed(m, v_tile + (k * 16 + lane / 8 % 2 * 8 + lane % 8) * kRow + n * 16 + lane / 16 * 8);
        multiply_add<dtype>(sums[2 * n], shares, m[0], m[1]);
        multiply_add<dtype>(sums[2 * n + 1], shares, m[2], m[3]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    total[r] += __shfl_xor_sync(~0u, total[r], 1);
    total[r] += __shfl_xor_sync(~0u, total[r], 2);
    if (mine[r] >= rows) continue;
    u16* to = out + (i64(mine[r]) * heads + head) * dim + quad * 2;
#pragma unroll
    for (int n = 0; n < dim / 8; n++)
      *reinterpret_cast<u32*>(to + n * 8) = pack<dtype>(sums[n][2 * r] / total[r], sums[n][2 * r + 1] / total[r]);
  }
}

// WIDTH is that of a head.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attend_prompt(const u16* q, const u16* keys, const u16* values, u16* out, int rows, int heads, int kv_heads, int context,
                  int capacity, int window, float scale) {
  attend<TYPE, WIDTH, WIDTH <= 128 ? 64 : 32>(q, keys, values, out, rows, heads, kv_heads, context, capacity, window, scale);
}

#endif

// ---- Experts of prompts ----------------------------------------------------------------------------------------------

#ifdef EXPERTS

// 32 numbers of a row of a matrix, as they lie in memory.
template <int bits>
__device__ void load_piece(u32 (&words)[bits], const u32* from) {
  constexpr int kAtOnce = bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < bits; i += kAtOnce) {
    if constexpr (kAtOnce == 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + i);
      words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
    } else if constexpr (kAtOnce == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(from + i);
      words[i] = two.x, words[i + 1] = two.y;
    } else {
      words[i] = from[i];
    }
  }
}

template <int mode, int bits>
__device__ float number_of_piece(const u32 (&words)[bits], int i) {
  const int at = i * bits, shift = at % 32;
  u32 q = words[at / 32] >> shift;
  if (shift + bits > 32) q |= words[at / 32 + 1] << (32 - shift);
  q &= (1u << bits) - 1;
  // A float of 2^23 and more has its unit in the last place.
  if constexpr (mode == 0) return __uint_as_float(0x4b000000 | q) - 8388608.f;
  return element(q, mode);
}

// The product of expert_product for many pairs, which sort_pairs has put in order: each block reads 128 rows of one
// expert's matrix once for up to kPairs of them. Modes as everywhere; width is a multiple of 32, height one of 2.
template <int dtype, int mode, int bits>
__device__ void products_of_experts(const u16* x, const int* order, const int* tiles, const u32* w, const void* scales,
                                    const void* biases, u16* out, int width, int height, int k, int own, int group,
                                    int scale_dtype) {
  constexpr int kDepth = 64, kRow = kDepth + kPad, kHeight = 128;
  constexpr int kScales = mode == 3 ? 2 : 1;  // of 32 numbers
  __shared__ __align__(16) u16 x_tile[kPairs * kRow];
  __shared__ __align__(16) u16 w_tile[kHeight * kRow];
  const int* tile = tiles + 3 * blockIdx.y;
  const int expert = tile[0], count = tile[2];
  if (count == 0) return;
  order += tile[1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // What this thread brings: 16 bytes of every 32nd row of x, and half a row of w.
  const int column = int(threadIdx.x) % 8 * 8;
  const u16* rows[kPairs / 32];
#pragma unroll
  for (int i = 0; i < kPairs / 32; i++) {
    const int r = int(threadIdx.x) / 8 + 32 * i;
    rows[i] = r < count ? x + i64(own ? order[r] : order[r] / k) * width + column : nullptr;
  }
  const int n = blockIdx.x * kHeight + int(threadIdx.x) / 2, part = int(threadIdx.x) % 2 * 32;
  const i64 matrix_row = i64(expert) * height + min(n, height - 1);
  const u32* from = w + matrix_row * (width / 32) * bits;
  const i64 groups = mode == 4 ? 0 : matrix_row * (width / group);

  uint4 x_next[kPairs / 32];
  u32 w_next[bits];
  float scale[kScales], bias = 0;
  auto fetch = [&](int at) {
#pragma unroll
    for (int i = 0; i < kPairs / 32; i++)
      x_next[i] = rows[i] && at + column < width ? *reinterpret_cast<const uint4*>(rows[i] + at) : uint4{};
    const int first = min(at + part, width - 32);  // beyond the end x is 0, and w a number whatever it is
    load_piece<bits>(w_next, from + first / 32 * bits);
    if constexpr (mode != 4) {
#pragma unroll
      for (int i = 0; i < kScales; i++) scale[i] = group_scale(scales, groups + first / group + i, mode, scale_dtype);
    }
    if constexpr (mode == 0) bias = load(biases, groups + first / group, scale_dtype);
  };
  auto put = [&](int at) {
#pragma unroll
    for (int i = 0; i < kPairs / 32; i++)
      *reinterpret_cast<uint4*>(x_tile + (int(threadIdx.x) / 8 + 32 * i) * kRow + column) = x_next[i];
    uint4* to = reinterpret_cast<uint4*>(w_tile + int(threadIdx.x) / 2 * kRow + part);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 both[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        if constexpr (mode == 4) {
          both[j] = w_next[4 * i + j];
        } else {
          const int at = 8 * i + 2 * j;
          const float by = scale[at / (32 / kScales)];
          both[j] = pack<dtype>(number_of_piece<mode, bits>(w_next, at) * by + bias,
                                number_of_piece<mode, bits>(w_next, at + 1) * by + bias);
        }
      to[i] = {both[0], both[1], both[2], both[3]};
    }
  };

  // A warp makes 64 x 32 of the block's 128 x 128 results.
  const int pair_at = warp % 2 * 64, n_at = warp / 2 * 32;
  float sums[4][4][4] = {};
  fetch(0);
  for (int at = 0; at < width; at += kDepth) {
    __syncthreads();
    put(at);
    __syncthreads();
    if (at + kDepth < width) fetch(at + kDepth);
    if (pair_at >= count) continue;
#pragma unroll
    for (int d = 0; d < kDepth / 16; d++) {
      u32 b[2][4];
#pragma unroll
      for (int j = 0; j < 2; j++)
        load_matrices(b[j], w_tile + (n_at + j * 16 + lane / 16 * 8 + lane % 8) * kRow + d * 16 + lane / 8 % 2 * 8);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (pair_at + i * 16 >= count) break;
        u32 a[4];
        load_matrices(a, x_tile + (pair_at + i * 16 + lane % 16) * kRow + d * 16 + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 4; j++) multiply_add<dtype>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int pair = pair_at + i * 16 + lane / 4 + 8 * r;
      if (pair >= count) continue;
      u16* to = out + i64(order[pair]) * height;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int column = int(blockIdx.x) * kHeight + n_at + j * 8 + lane % 4 * 2;
        if (column < height) *reinterpret_cast<u32*>(to + column) = pack<dtype>(sums[i][j][2 * r], sums[i][j][2 * r + 1]);
      }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
    expert_products(const u16* x, const int* order, const int* tiles, const u32* w, const void* scales, const void* biases,
                    u16* out, int width, int height, int k, int own, int group, int scale_dtype) {
  products_of_experts<TYPE, MODE, BITS>(x, order, tiles, w, scales, biases, out, width, height, k, own, group, scale_dtype);
}

#endif
