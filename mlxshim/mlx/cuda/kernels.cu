// The kernels of our own, in plain CUDA C++ without any header, so that NVRTC needs no folder of headers and a tenth of
// a second. They take the place of MLX ops that MLX would compile at run time, at a second or two apiece, or that take
// several of its ops. Element types are arguments: 0 f32, 1 f16, 2 bf16.

typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

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

// ---- Experts ---------------------------------------------------------------------------------------------------------

__device__ float from_e2m1(u32 q) {
  const u32 magnitude = q & 7;
  const float value = magnitude < 2 ? float(magnitude) * 0.5f : float(2 + magnitude % 2) * float(1 << magnitude / 2) * 0.25f;
  return q & 8 ? -value : value;
}
__device__ float from_e4m3(u32 q) {
  const u32 exponent = q >> 3 & 15, fraction = q & 7;
  const float value = exponent ? __uint_as_float((exponent + 120) << 23 | fraction << 20) : float(fraction) / 512;
  return q & 128 ? -value : value;
}
__device__ float from_e8m0(u32 q) { return __uint_as_float(q ? q << 23 : 1u << 22); }

// Quantization modes: 0 affine, 1 mxfp4, 2 mxfp8, 3 nvfp4.
__device__ float group_scale(const void* scales, i64 at, int mode, int dtype) {
  if (mode == 0) return load(scales, at, dtype);
  const u32 q = static_cast<const u8*>(scales)[at];
  return mode == 3 ? from_e4m3(q) : from_e8m0(q);
}
__device__ float element(u32 q, int mode) { return mode == 0 ? float(q) : mode == 2 ? from_e4m3(q) : from_e2m1(q); }

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
