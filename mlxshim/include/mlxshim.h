/* The C ABI of mlxcel: what a backend library offers to the Go program.
 *
 * Two libraries implement it: mlxshim (on MLX, the reference) and native (our own kernels). Go's half
 * (package bindings) is generated from this file, so the file keeps to a small subset of C:
 * #define constants, typedef structs of int64_t and pointer fields, and the functions below.
 *
 * Conventions
 *   - Parameters are pointers and int64_t only; every function returns an int32_t status and never throws.
 *   - Objects are handles: int64_t numbers greater than 0 that are never used twice in a process.
 *     A handle that is 0, negative, unknown, destroyed or of another kind gives MLXSHIM_ERR_ARGUMENT.
 *   - A parameter block begins with its own size in bytes (a wrong one is MLXSHIM_ERR_ARGUMENT).
 *   - Text is UTF-8 with an explicit length, and need not end in a zero byte. A text result is written up to
 *     `capacity` bytes; *length receives the whole length, so a caller may ask again with more room.
 *   - After a status other than MLXSHIM_OK, mlxshim_last_error gives one sentence.
 *   - All calls on one context and on what was made from it come from one thread at a time, and it must be the
 *     thread that created the context (MLX's streams belong to a thread).
 *   - Memory handed in is only read during the call. The file of a weight is read when the weight is added, packed, or
 *     first used by a program that is loaded; a library keeps it open until then, whatever becomes of its handle.
 */
#ifndef MLXSHIM_H
#define MLXSHIM_H

#include <stdint.h>

#if defined(_WIN32)
#define MLXSHIM_EXPORT __declspec(dllexport)
#else
#define MLXSHIM_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define MLXSHIM_NOEXCEPT noexcept
extern "C" {
#else
#define MLXSHIM_NOEXCEPT
#endif

/* The number of this ABI; any change of meaning or layout raises it. */
#define MLXSHIM_ABI_VERSION 3

/* Status codes. */
#define MLXSHIM_OK 0
#define MLXSHIM_ERR_ARGUMENT 1    /* a null, stale or out-of-range argument */
#define MLXSHIM_ERR_VERSION 2     /* the library beside us is not the one we were built for */
#define MLXSHIM_ERR_PROGRAM 3     /* the program is malformed or does not fit weights and state */
#define MLXSHIM_ERR_UNSUPPORTED 4 /* well-formed, but this library lacks an op, dtype or format of it */
#define MLXSHIM_ERR_IO 5          /* a file could not be opened or read */
#define MLXSHIM_ERR_MEMORY 6      /* out of host or device memory */
#define MLXSHIM_ERR_COMPUTE 7     /* an op failed while it ran */
#define MLXSHIM_ERR_DEVICE 8      /* the device is lost: every later call on the context fails like this and frees nothing; end the process */
#define MLXSHIM_ERR_INTERNAL 9    /* a defect of the library */

/* Element types. */
#define MLXSHIM_DTYPE_BOOL 1
#define MLXSHIM_DTYPE_U8 2
#define MLXSHIM_DTYPE_I8 3
#define MLXSHIM_DTYPE_U16 4
#define MLXSHIM_DTYPE_I16 5
#define MLXSHIM_DTYPE_U32 6
#define MLXSHIM_DTYPE_I32 7
#define MLXSHIM_DTYPE_U64 8
#define MLXSHIM_DTYPE_I64 9
#define MLXSHIM_DTYPE_F16 10
#define MLXSHIM_DTYPE_BF16 11
#define MLXSHIM_DTYPE_F32 12
#define MLXSHIM_DTYPE_F64 13

/* Devices. */
#define MLXSHIM_DEVICE_CPU 1
#define MLXSHIM_DEVICE_CUDA 2

/* Limits that every library keeps. */
#define MLXSHIM_MAX_DIMS 8

/* Quantization modes of a weight (MLX's layouts: values packed into u32 along the last axis, lowest bits first).
 * affine: value = scale * q + bias per group, bits 2, 3, 4, 5, 6, 8, groups of 32, 64 or 128.
 * mxfp4 (4 bit, group 32), mxfp8 (8 bit, group 32), nvfp4 (4 bit, group 16): u8 scales, no biases. */
#define MLXSHIM_QUANT_NONE 0
#define MLXSHIM_QUANT_AFFINE 1
#define MLXSHIM_QUANT_MXFP4 2
#define MLXSHIM_QUANT_MXFP8 3
#define MLXSHIM_QUANT_NVFP4 4

/* ---- Programs ----------------------------------------------------------------------------------------------
 *
 * A program is a list of ops over values, written as a flat list of int64 words:
 *
 *   MLXSHIM_PROGRAM_MAGIC, MLXSHIM_PROGRAM_VERSION,
 *   inputs, weights, ops, outputs           counts
 *   max_tokens, max_rows, max_sequences     what the program was recorded for: upper bounds of a run's live counts
 *   per input:   a type
 *   per weight:  its index in the weight set
 *   per op:      opcode, n, n input values (-1: absent), m, m attributes, k, k types of its outputs
 *   per output:  a value
 *
 * A type is: dtype, axis, ndim, ndim dims. Values are numbered: inputs, then weights, then the outputs of the
 * ops in order; an op uses only earlier values. A floating-point attribute is the bits of an IEEE f64.
 *
 * The axis of a type says what its first dimension counts. A run gives the live counts; rows past them are neither
 * computed nor read, so one program serves every count up to what it was recorded for.
 */
#define MLXSHIM_PROGRAM_MAGIC 0x4d584c50524f4731
#define MLXSHIM_PROGRAM_VERSION 1

#define MLXSHIM_AXIS_FIXED 0     /* a dimension like any other */
#define MLXSHIM_AXIS_TOKENS 1    /* the tokens of the step, all sequences in a row */
#define MLXSHIM_AXIS_ROWS 2      /* the rows that get logits */
#define MLXSHIM_AXIS_SEQUENCES 3 /* the sequences of the step */
#define MLXSHIM_AXIS_OFFSETS 4   /* sequences + 1 */

/* A token id with this value, where load_tokens reads it, stands for the token that was last stored for the slot. */
#define MLXSHIM_TOKEN_LAST -2

/* As the file of a weight's only part: the weight is made up where it will lie, for benchmarks. Floats are in
 * [-1/32, 1/32), integers have any bits; the same for the same offset. */
#define MLXSHIM_FILE_RANDOM -1

/* What a file may hold instead of a weight's bytes: GGUF's blocks of 32 elements, which are MLX's affine quantization with
 * groups of 32 in other words. d and m are f16, q follows them; of 4 bits, element i and i + 16 share a byte. */
#define MLXSHIM_BLOCKS_NONE 0
#define MLXSHIM_BLOCKS_Q4_0 1 /* d, q of 4 bits:    d * (q - 8); 18 bytes */
#define MLXSHIM_BLOCKS_Q4_1 2 /* d, m, q of 4 bits: d * q + m;   20 bytes */
#define MLXSHIM_BLOCKS_Q8_0 3 /* d, q of 8 bits:    d * q, q has a sign; 34 bytes */

/* What of the blocks is wanted. Scales and biases are f16, or f32 where the weight's dtype says so. */
#define MLXSHIM_FIELD_ELEMENTS 0 /* as MLX packs them: u32 words, lowest bits first */
#define MLXSHIM_FIELD_SCALES 1   /* d */
#define MLXSHIM_FIELD_BIASES 2   /* -8 d, m, -128 d */

/* Ops. Shapes: T tokens, R rows, S sequences, V vocabulary, E experts; [..] are leading dimensions that stay.
 * The batch of a step is described by three i32 inputs of the program itself, never by computed values:
 *   slots [S]: the state slot of each sequence; offsets [S+1]: its first token in the step, and the end;
 *   contexts [S]: its length after the step. So the new tokens of sequence s have the positions
 *   contexts[s]-(offsets[s+1]-offsets[s]) .. contexts[s]-1. */

/* ids i32 [T], w, scales?, biases? -> [T, H]. attributes: quant mode, bits, group. */
#define MLXSHIM_OP_EMBED 1
/* x [.., K], w [N, K], scales?, biases?, bias? [N] -> x w^T + bias [.., N]. attributes: quant mode, bits, group. */
#define MLXSHIM_OP_LINEAR 2
/* x [T, K] or [T, k, K], indices i32 [T, k], w [E, N, K], scales?, biases?, bias? [E, N] -> [T, k, N].
 * attributes: quant mode, bits, group. */
#define MLXSHIM_OP_EXPERT_LINEAR 3
/* x [.., D], w? [D] -> x / sqrt(mean(x^2) + eps) * w. attributes: eps. */
#define MLXSHIM_OP_RMS_NORM 4
/* x [T, heads, D], positions i32 [T], periods? f32 [dims/2] -> rotated x. The first `dims` of D are turned by
 * position * scale / period, with period_i = base^(2i/dims) unless given; pairs are (i, i+dims/2), or (2i, 2i+1) when
 * traditional; the turned part is multiplied by mscale. attributes: dims, traditional, base, scale, mscale. */
#define MLXSHIM_OP_ROPE 5
/* k [T, heads, Dk], v [T, heads, Dv], slots, offsets, contexts -> nothing: appends to the state. attributes: layer. */
#define MLXSHIM_OP_KV_WRITE 6
/* q [T, heads, Dk], slots, offsets, contexts -> [T, heads, Dv]: causal softmax(q k^T scale) v over the state of
 * `layer`, the new tokens included; a layer with a window sees the last `window` positions, its own included.
 * attributes: layer, scale. */
#define MLXSHIM_OP_ATTEND 7
/* a, b of one shape -> a + b; a * b. */
#define MLXSHIM_OP_ADD 8
#define MLXSHIM_OP_MULTIPLY 9
/* x -> x * sigmoid(x). */
#define MLXSHIM_OP_SILU 10
/* gate, up of one shape -> silu(gate) * up. */
#define MLXSHIM_OP_SWIGLU 11
/* x [.., D] -> x[.., start : start+size]. attributes: start, size. */
#define MLXSHIM_OP_SLICE 12
/* x [A, ..] -> the same elements with other trailing dimensions; the first one stays. */
#define MLXSHIM_OP_RESHAPE 13
/* x [T, D], rows i32 [R] -> [R, D]. */
#define MLXSHIM_OP_GATHER_ROWS 14
/* logits [T, E] -> indices i32 [T, k], weights [T, k]: softmax over the experts, the k largest, divided by their
 * sum when normalize. attributes: k, normalize. */
#define MLXSHIM_OP_ROUTE 15
/* y [T, k, D], weights [T, k] -> sum over k [T, D]. */
#define MLXSHIM_OP_COMBINE 16
/* x -> x in the dtype of the output. */
#define MLXSHIM_OP_CAST 17
/* tokens i32 [A] or [A, W], slots i32 [A] -> tokens, with MLXSHIM_TOKEN_LAST replaced by the slot's stored token. */
#define MLXSHIM_OP_LOAD_TOKENS 18
/* tokens i32 [R], slots i32 [R] -> nothing: stores each row's token for its slot; a negative one as 0. */
#define MLXSHIM_OP_STORE_TOKENS 19
/* logits [R, V], history i32 [R, W] (-1: empty), penalties f32 [R, 3] -> logits. Per token that the history holds c
 * times: divided by (if positive, else multiplied by) penalties[0], then less c * penalties[1] (frequency) and
 * penalties[2] (presence). */
#define MLXSHIM_OP_PENALIZE 20
/* logits [R, V], ids i32 [R, B] (-1: none), values f32 [R, B] -> logits with values added. */
#define MLXSHIM_OP_BIAS 21
/* logits [R, V] -> i32 [R]: the first largest; -1 for a row whose logits are not numbers. */
#define MLXSHIM_OP_ARGMAX 22
/* logits [R, V], settings f32 [R, 5] = temperature, top_k (0: all), top_p, min_p, u in [0, 1) -> i32 [R].
 * Candidates in falling order of logit (ties: lower id first); keep the first top_k; of those the shortest head whose
 * probability is at least top_p; of those the ones with at least min_p of the best one's probability; then take
 * softmax(logits / temperature) over what is left and the first candidate whose cumulative probability exceeds u.
 * Temperature 0 takes the best. A row whose logits are not numbers gives -1. */
#define MLXSHIM_OP_SAMPLE 23

/* ---- Parameter blocks ---------------------------------------------------------------------------------------- */

typedef struct mlxshim_context_params {
  int64_t size;
  int64_t device;       /* MLXSHIM_DEVICE_… */
  int64_t device_index; /* which GPU, from 0 */
  int64_t threads;      /* CPU threads, 0: the library's choice */
  int64_t memory_limit; /* bytes that weights and state may take of a GPU's memory, 0: all; more is MLXSHIM_ERR_MEMORY */
} mlxshim_context_params;

typedef struct mlxshim_device_info {
  int64_t size;
  int64_t device;
  int64_t device_index;
  int64_t total_memory;  /* bytes; 0: unknown */
  int64_t free_memory;   /* bytes; 0: unknown */
  int64_t compute_major; /* CUDA compute capability, 0 on the CPU */
  int64_t compute_minor;
  int64_t activation_dtype; /* the float type that this device computes fastest and safely in */
} mlxshim_device_info;

typedef struct mlxshim_memory_info {
  int64_t size;
  int64_t active; /* bytes in use by arrays */
  int64_t peak;   /* the most since the last reset */
  int64_t cached; /* freed, kept for reuse */
  int64_t host;   /* bytes of weights in host memory that a GPU reads over the bus: 0, or something is wrong */
} mlxshim_memory_info;

/* A contiguous run of a weight's bytes: in an open file, in memory when file is 0, or made up. With head_rows, the two
 * halves of every so many rows are interleaved in the file: its rows 2 i and 2 i + 1 are rows i and head_rows / 2 + i. */
typedef struct mlxshim_part {
  int64_t size;
  int64_t file;     /* handle, 0, or MLXSHIM_FILE_RANDOM */
  int64_t offset;   /* in the file */
  int64_t bytes;
  const void* data; /* when file is 0 */
  int64_t blocks;   /* what the file holds; bytes are what is made of it, of whole blocks */
  int64_t field;    /* of the blocks */
  int64_t head_rows; /* 0: rows are in order */
  int64_t row_bytes; /* in the file, where head_rows is not 0 */
} mlxshim_part;

typedef struct mlxshim_weight {
  int64_t size;
  const char* name;
  int64_t name_length;
  int64_t dtype;  /* of the bytes */
  int64_t resident_dtype; /* what to keep: the same, or for floats a wider or narrower float */
  int64_t ndim;
  const int64_t* dims;
  int64_t part_count;
  const mlxshim_part* parts; /* in order they are the row-major little-endian bytes */
} mlxshim_weight;

typedef struct mlxshim_weight_info {
  int64_t size;
  int64_t dtype; /* resident */
  int64_t ndim;
  int64_t bytes; /* resident */
} mlxshim_weight_info;

typedef struct mlxshim_layer {
  int64_t size;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  int64_t window; /* 0: full attention */
} mlxshim_layer;

typedef struct mlxshim_state_params {
  int64_t size;
  int64_t dtype; /* of keys and values */
  int64_t max_sequences; /* slots 0 .. max_sequences-1 */
  int64_t max_tokens;    /* the longest sequence */
  int64_t layer_count;
  const mlxshim_layer* layers;
} mlxshim_state_params;

typedef struct mlxshim_state_info {
  int64_t size;
  int64_t bytes; /* held now for keys and values */
} mlxshim_state_info;

typedef struct mlxshim_run {
  int64_t size;
  int64_t tokens;    /* live counts, each from 1 to what the program was recorded for (rows: from 0) */
  int64_t rows;
  int64_t sequences;
  int64_t input_count;
  const void* const* inputs; /* host memory, live rows only, row-major */
  int64_t output_count;
  int64_t* outputs; /* receives value handles */
} mlxshim_run;

/* ---- Functions ----------------------------------------------------------------------------------------------- */

/* Writes MLXSHIM_ABI_VERSION of the library. Call it first. */
MLXSHIM_EXPORT int32_t mlxshim_abi_version(int64_t* version) MLXSHIM_NOEXCEPT;

/* Writes, for every block above in order, its size and the offsets of its fields; *count is how many numbers there are. */
MLXSHIM_EXPORT int32_t mlxshim_layout(int64_t* table, int64_t capacity, int64_t* count) MLXSHIM_NOEXCEPT;

/* Writes a JSON object about the library: backend, version, built_for and loaded (MLX versions), devices.
 * MLXSHIM_ERR_VERSION where built_for and loaded differ. */
MLXSHIM_EXPORT int32_t mlxshim_library_info(char* text, int64_t capacity, int64_t* length) MLXSHIM_NOEXCEPT;

/* Writes the sentence of the last failure on `context`; with 0, of the last failure on this thread. */
MLXSHIM_EXPORT int32_t mlxshim_last_error(int64_t context, char* text, int64_t capacity, int64_t* length) MLXSHIM_NOEXCEPT;

/* Opens a device for the calling thread; destroying the context destroys all that was made from it. */
MLXSHIM_EXPORT int32_t mlxshim_context_create(const mlxshim_context_params* params, int64_t* context) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_context_destroy(int64_t context) MLXSHIM_NOEXCEPT;

MLXSHIM_EXPORT int32_t mlxshim_device_facts(int64_t context, mlxshim_device_info* info) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_memory(int64_t context, mlxshim_memory_info* info) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_memory_reset_peak(int64_t context) MLXSHIM_NOEXCEPT;
/* Gives freed memory that is kept for reuse back to the system. */
MLXSHIM_EXPORT int32_t mlxshim_memory_trim(int64_t context) MLXSHIM_NOEXCEPT;

/* Opens a file for positioned 64-bit reads; path is absolute. */
MLXSHIM_EXPORT int32_t mlxshim_file_open(int64_t context, const char* path, int64_t path_length, int64_t* file) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_file_close(int64_t file) MLXSHIM_NOEXCEPT;

/* A weight set: tensors by index, resident until it is destroyed. */
MLXSHIM_EXPORT int32_t mlxshim_weights_create(int64_t context, int64_t* weights) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_weights_destroy(int64_t weights) MLXSHIM_NOEXCEPT;
/* Adds a tensor. */
MLXSHIM_EXPORT int32_t mlxshim_weights_add(int64_t weights, const mlxshim_weight* weight, int64_t* index) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_weights_count(int64_t weights, int64_t* count) MLXSHIM_NOEXCEPT;
/* Describes weight `index`; name may be null, dims has room for MLXSHIM_MAX_DIMS or is null. */
MLXSHIM_EXPORT int32_t mlxshim_weights_info(int64_t weights, int64_t index, mlxshim_weight_info* info, int64_t* dims, char* name, int64_t capacity, int64_t* length) MLXSHIM_NOEXCEPT;

/* Says that programs will multiply with a matrix or look its rows up: the indices of a weight, its scales and its biases (-1:
 * none), and its quantization, as the inputs and attributes of MLXSHIM_OP_LINEAR. A library may read and pack it now, and
 * not when a program is loaded. */
MLXSHIM_EXPORT int32_t mlxshim_weights_pack(int64_t weights, int64_t weight, int64_t scales, int64_t biases, int64_t mode, int64_t bits, int64_t group) MLXSHIM_NOEXCEPT;

/* Keys, values and last tokens of up to max_sequences sequences; memory is taken as they grow. */
MLXSHIM_EXPORT int32_t mlxshim_state_create(int64_t context, const mlxshim_state_params* params, int64_t* state) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_state_destroy(int64_t state) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_state_facts(int64_t state, mlxshim_state_info* info) MLXSHIM_NOEXCEPT;
/* Forgets a slot and frees its memory. */
MLXSHIM_EXPORT int32_t mlxshim_state_reset(int64_t state, int64_t slot) MLXSHIM_NOEXCEPT;
/* Makes slot `to` begin with the first `tokens` tokens of slot `from`. */
MLXSHIM_EXPORT int32_t mlxshim_state_copy(int64_t state, int64_t from, int64_t to, int64_t tokens) MLXSHIM_NOEXCEPT;

/* Checks a program against weights and state (0: none) and prepares it. *failed_op receives the number of the op
 * that is wrong or missing, -1 where it is none of them. */
MLXSHIM_EXPORT int32_t mlxshim_program_load(int64_t context, int64_t weights, int64_t state, const int64_t* words, int64_t count, int64_t* program, int64_t* failed_op) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_program_destroy(int64_t program) MLXSHIM_NOEXCEPT;
/* Writes how the program is run, a line a stage, for people. */
MLXSHIM_EXPORT int32_t mlxshim_program_describe(int64_t program, char* text, int64_t capacity, int64_t* length) MLXSHIM_NOEXCEPT;
/* Enqueues one run and returns without waiting for it; state is changed in the order of the calls. */
MLXSHIM_EXPORT int32_t mlxshim_program_run(int64_t program, const mlxshim_run* run, int64_t* failed_op) MLXSHIM_NOEXCEPT;

/* Waits for an output and copies it: bytes must be its size (live rows only). */
MLXSHIM_EXPORT int32_t mlxshim_value_read(int64_t value, void* data, int64_t bytes) MLXSHIM_NOEXCEPT;
MLXSHIM_EXPORT int32_t mlxshim_value_free(int64_t value) MLXSHIM_NOEXCEPT;
/* Waits for everything enqueued on the context. */
MLXSHIM_EXPORT int32_t mlxshim_synchronize(int64_t context) MLXSHIM_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
