// The op table: one line an op.
#include "program.h"

namespace mlxcel {

namespace {

constexpr OpFacts kOps[] = {
    // code, name, inputs at least and at most, attributes, outputs
    {MLXSHIM_OP_EMBED, "embed", 2, 4, 3, 1},
    {MLXSHIM_OP_LINEAR, "linear", 2, 5, 3, 1},
    {MLXSHIM_OP_EXPERT_LINEAR, "expert_linear", 3, 6, 3, 1},
    {MLXSHIM_OP_RMS_NORM, "rms_norm", 1, 2, 1, 1},
    {MLXSHIM_OP_ROPE, "rope", 2, 3, 5, 1},
    {MLXSHIM_OP_KV_WRITE, "kv_write", 5, 5, 1, 0},
    {MLXSHIM_OP_ATTEND, "attend", 4, 4, 2, 1},
    {MLXSHIM_OP_ADD, "add", 2, 2, 0, 1},
    {MLXSHIM_OP_MULTIPLY, "multiply", 2, 2, 0, 1},
    {MLXSHIM_OP_SILU, "silu", 1, 1, 0, 1},
    {MLXSHIM_OP_SWIGLU, "swiglu", 2, 2, 0, 1},
    {MLXSHIM_OP_SLICE, "slice", 1, 1, 2, 1},
    {MLXSHIM_OP_RESHAPE, "reshape", 1, 1, 0, 1},
    {MLXSHIM_OP_GATHER_ROWS, "gather_rows", 2, 2, 0, 1},
    {MLXSHIM_OP_ROUTE, "route", 1, 1, 2, 2},
    {MLXSHIM_OP_COMBINE, "combine", 2, 2, 0, 1},
    {MLXSHIM_OP_CAST, "cast", 1, 1, 0, 1},
    {MLXSHIM_OP_LOAD_TOKENS, "load_tokens", 2, 2, 0, 1},
    {MLXSHIM_OP_STORE_TOKENS, "store_tokens", 2, 2, 0, 0},
    {MLXSHIM_OP_PENALIZE, "penalize", 3, 3, 0, 1},
    {MLXSHIM_OP_BIAS, "bias", 3, 3, 0, 1},
    {MLXSHIM_OP_ARGMAX, "argmax", 1, 1, 0, 1},
    {MLXSHIM_OP_SAMPLE, "sample", 2, 2, 0, 1},
};

}  // namespace

const OpFacts* op_facts(int64_t code) {
  for (const OpFacts& facts : kOps)
    if (facts.code == code) return &facts;
  return nullptr;
}

}  // namespace mlxcel
