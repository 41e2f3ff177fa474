// A program as the ABI hands it over: decoded from its words, then checked against weights and state.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mlxshim.h"

namespace mlxcel {

// The live counts of one run.
struct Counts {
  int64_t tokens = 0, rows = 0, sequences = 0;

  // How many of an axis are live; -1 for a fixed one.
  int64_t along(int64_t axis) const {
    switch (axis) {
      case MLXSHIM_AXIS_TOKENS: return tokens;
      case MLXSHIM_AXIS_ROWS: return rows;
      case MLXSHIM_AXIS_SEQUENCES: return sequences;
      case MLXSHIM_AXIS_OFFSETS: return sequences + 1;
      default: return -1;
    }
  }
};

struct Type {
  int64_t dtype = 0;
  int64_t axis = MLXSHIM_AXIS_FIXED;
  int ndim = 0;
  std::array<int64_t, MLXSHIM_MAX_DIMS> dims{};

  int64_t last() const { return dims[size_t(ndim - 1)]; }
  int64_t elements() const;
  // The same type with the first dimension that a run gives it.
  Type live(const Counts& counts) const;
  bool same_shape(const Type& other) const;
  // "f32[17, 576]"
  std::string print() const;
  bool operator==(const Type&) const = default;
};

// What the op table says of an opcode.
struct OpFacts {
  int64_t code;
  const char* name;
  int min_inputs, max_inputs;  // the trailing ones of max_inputs may be left out or be -1
  int attributes;
  int outputs;
};

// The facts of an opcode, null where there is none.
const OpFacts* op_facts(int64_t code);

struct Op {
  const OpFacts* facts = nullptr;
  std::vector<int32_t> inputs;  // max_inputs of them: value numbers, -1: absent
  std::vector<int64_t> attributes;
  int32_t first_output = 0;

  int64_t integer(size_t i) const { return attributes[i]; }
  double real(size_t i) const { return std::bit_cast<double>(attributes[i]); }
  bool has(size_t i) const { return inputs[i] >= 0; }
};

// What the host must check of an i32 input before a run, because ops index memory with it.
struct Demand {
  int32_t input;
  int64_t low, high;                  // every element is in [low, high)
  int64_t axis = MLXSHIM_AXIS_FIXED;  // not fixed: high is the live count of this axis
  bool distinct = false;
  // -1, or the input with the slot of each row: then MLXSHIM_TOKEN_LAST is allowed where that slot's stored token is
  // below `high`.
  int32_t slots = -1;
};

// A store_tokens op: whose slots, and below what its tokens are (0: they are the input `tokens`).
struct Store {
  int32_t slots;
  int64_t bound;
  int32_t tokens;
};

struct LayerUse {
  bool written = false, read = false;
};

struct Program {
  int64_t max_tokens = 0, max_rows = 0, max_sequences = 0;
  int32_t input_count = 0, weight_count = 0;
  std::vector<Type> types;       // of every value; those of the weights are filled in by check_program
  std::vector<int64_t> weights;  // indices in the weight set
  std::vector<Op> ops;
  std::vector<int32_t> outputs;

  // Filled in by check_program.
  std::vector<Demand> demands;
  std::vector<Store> stores;
  std::vector<LayerUse> layers;
  int32_t slots = -1, offsets = -1, contexts = -1;  // the inputs that describe the batch, -1: there is no KV op

  bool is_input(int32_t value) const { return value >= 0 && value < input_count; }
  bool is_weight(int32_t value) const { return value >= input_count && value < input_count + weight_count; }
};

// Reads the words. Throws MLXSHIM_ERR_PROGRAM, with the op's number where one is wrong, and MLXSHIM_ERR_UNSUPPORTED
// for an unknown opcode or version. Takes memory in proportion to the words only.
Program decode_program(std::span<const int64_t> words);

struct StateShape {
  struct Layer {
    int64_t kv_heads, key_dim, value_dim, window;
  };
  int64_t dtype, max_sequences, max_tokens;
  std::vector<Layer> layers;
};

// Checks the types of every op, with the types of the whole weight set and the state (null: none), and finds the
// demands. Throws as decode_program does.
void check_program(Program& program, std::span<const Type> weights, const StateShape* state);

}  // namespace mlxcel
