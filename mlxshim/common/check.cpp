// Type rules of the ops, and where the values come from that ops index memory with.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dtype.h"
#include "program.h"
#include "quant.h"
#include "status.h"

namespace mlxcel {

namespace {

constexpr int64_t kI32 = MLXSHIM_DTYPE_I32, kF32 = MLXSHIM_DTYPE_F32;

// Where the elements of an i32 value come from.
struct Source {
  enum { kUnknown, kInput, kStored, kBounded } kind = kUnknown;
  int32_t input = -1;  // kInput: this input; kStored: the same through load_tokens
  int32_t slots = -1;  // kStored: the input with the slots
  int64_t bound = 0;   // kBounded: in [low, bound)
  int64_t low = 0;
};

class Checker {
 public:
  Checker(Program& program, const StateShape* state) : program_(program), state_(state) {
    sources_.resize(program.types.size());
    for (int32_t i = 0; i < program.input_count; i++)
      if (program.types[size_t(i)].dtype == kI32) sources_[size_t(i)] = {Source::kInput, i};
    if (state) program.layers.resize(state->layers.size());
  }

  void check() {
    for (number_ = 0; number_ < int64_t(program_.ops.size()); number_++) {
      op_ = &program_.ops[size_t(number_)];
      check_op();
    }
  }

 private:
  template <class... Parts>
  void want(bool ok, const Parts&... parts) const {
    if (!ok) throw Status(MLXSHIM_ERR_PROGRAM, text(op_->facts->name, ": ", parts...), number_);
  }

  bool has(size_t i) const { return op_->has(i); }
  const Type& in(size_t i) const { return program_.types[size_t(op_->inputs[i])]; }
  const Type& out(size_t i = 0) const { return program_.types[size_t(op_->first_output) + i]; }
  int64_t attribute(size_t i) const { return op_->integer(i); }

  void finite(size_t i, const char* what) const { want(std::isfinite(op_->real(i)), what, " is not a finite number"); }

  void weight(size_t i, const char* what) const { want(program_.is_weight(op_->inputs[i]), what, " is not a weight"); }

  void floats(const Type& t, const char* what) const {
    want(is_float(t.dtype), what, " is ", t.print(), ", not of floats");
  }

  void shape(const Type& t, std::initializer_list<int64_t> dims, const char* what) const {
    want(t.ndim == int(dims.size()) && std::equal(dims.begin(), dims.end(), t.dims.begin()), what, " is ", t.print(),
         ", which does not fit");
  }

  // The output is x with another last dimension, of any float type.
  void like_with_last(const Type& x, int64_t last) const {
    Type t = x;
    t.dims[size_t(t.ndim - 1)] = last;
    want(out().same_shape(t), "the output is ", out().print(), " for an input of ", x.print());
    floats(out(), "the output");
  }

  // w [.., N, K], lead_dims before N, with its scales and biases at the inputs w, w+1, w+2; returns K.
  int64_t quantized(size_t w, int lead_dims) const {
    const QuantFormat q{attribute(0), attribute(1), attribute(2)};
    weight(w, "w");
    want(in(w).ndim == lead_dims + 2, "w is ", in(w).print(), ", which does not fit");
    auto given = [&](size_t i) { return has(i) ? &in(i) : nullptr; };
    const std::string fault = matrix_fault(q, in(w), given(w + 1), given(w + 2));
    want(fault.empty(), fault);
    if (has(w + 1)) weight(w + 1, "scales");
    if (has(w + 2)) weight(w + 2, "biases");
    return matrix_columns(q, in(w));
  }

  // Says that every element of value v must be in [low, high), or below the live count of an axis.
  void demand(int32_t v, int64_t low, int64_t high, int64_t axis = MLXSHIM_AXIS_FIXED) {
    const Source& source = sources_[size_t(v)];
    switch (source.kind) {
      case Source::kInput: program_.demands.push_back({source.input, low, high, axis}); return;
      case Source::kStored: program_.demands.push_back({source.input, low, high, axis, false, source.slots}); return;
      case Source::kBounded:
        want(axis == MLXSHIM_AXIS_FIXED && source.low >= low && source.bound <= high, "indices from ", source.low,
             " to ", source.bound - 1, " where ", low, " to ", high - 1, " are right");
        return;
      default: want(false, "the indices come from nowhere that can be checked");
    }
  }

  // An i32 input of the program itself.
  int32_t direct(size_t i, const char* what) const {
    int32_t v = op_->inputs[i];
    want(program_.is_input(v) && in(i).dtype == kI32, what, " is not an i32 input of the program");
    return v;
  }

  int32_t slots_input(size_t i, int64_t axis, bool distinct) {
    want(state_ != nullptr, "the program is loaded without a state");
    int32_t slots = direct(i, "slots");
    want(in(i).ndim == 1 && in(i).axis == axis, "slots is ", in(i).print(), ", which does not fit");
    program_.demands.push_back({slots, 0, state_->max_sequences, MLXSHIM_AXIS_FIXED, distinct});
    return slots;
  }

  // The three inputs that describe the batch, from input number i on.
  const StateShape::Layer& batch(size_t i) {
    int32_t slots = slots_input(i, MLXSHIM_AXIS_SEQUENCES, true);
    int32_t offsets = direct(i + 1, "offsets"), contexts = direct(i + 2, "contexts");
    want(in(i + 1).ndim == 1 && in(i + 1).axis == MLXSHIM_AXIS_OFFSETS, "offsets is ", in(i + 1).print());
    want(in(i + 2).ndim == 1 && in(i + 2).axis == MLXSHIM_AXIS_SEQUENCES, "contexts is ", in(i + 2).print());
    if (program_.slots < 0) {
      program_.slots = slots;
      program_.offsets = offsets;
      program_.contexts = contexts;
    } else {
      program_.demands.pop_back();  // asked for already
    }
    want(program_.slots == slots && program_.offsets == offsets && program_.contexts == contexts,
         "another batch than that of the ops before");
    want(attribute(0) >= 0 && attribute(0) < int64_t(state_->layers.size()), "the state has no layer ", attribute(0));
    return state_->layers[size_t(attribute(0))];
  }

  void check_op();
  void check_rope() const;
  void check_experts();
  void check_tokens();
  void check_logits(int64_t code);

  Program& program_;
  const StateShape* state_;
  const Op* op_ = nullptr;
  int64_t number_ = -1;
  std::vector<Source> sources_;
};

void Checker::check_op() {
  const Op& op = *op_;
  switch (op.facts->code) {
    case MLXSHIM_OP_EMBED: {
      int64_t width = quantized(1, 0);
      want(in(0).dtype == kI32 && in(0).ndim == 1, "ids is ", in(0).print());
      demand(op.inputs[0], 0, in(1).dims[0]);
      floats(out(), "the output");
      want(out().axis == in(0).axis, "the output is ", out().print());
      shape(out(), {in(0).dims[0], width}, "the output");
      return;
    }
    case MLXSHIM_OP_LINEAR: {
      int64_t width = quantized(1, 0), n = in(1).dims[0];
      floats(in(0), "x");
      want(in(0).last() == width, "x is ", in(0).print(), ", w takes ", width);
      if (has(4)) {
        weight(4, "bias");
        floats(in(4), "bias");
        shape(in(4), {n}, "bias");
      }
      like_with_last(in(0), n);
      return;
    }
    case MLXSHIM_OP_EXPERT_LINEAR:
    case MLXSHIM_OP_ROUTE:
    case MLXSHIM_OP_COMBINE: check_experts(); return;
    case MLXSHIM_OP_RMS_NORM:
      floats(in(0), "x");
      if (has(1)) {
        weight(1, "w");
        floats(in(1), "w");
        shape(in(1), {in(0).last()}, "w");
      }
      finite(0, "eps");
      like_with_last(in(0), in(0).last());
      return;
    case MLXSHIM_OP_ROPE: check_rope(); return;
    case MLXSHIM_OP_KV_WRITE: {
      const auto& layer = batch(2);
      LayerUse& use = program_.layers[size_t(attribute(0))];
      want(!use.written, "layer ", attribute(0), " is written twice");
      want(!use.read, "layer ", attribute(0), " is written after it is read");
      use.written = true;
      floats(in(0), "k");
      floats(in(1), "v");
      want(in(0).axis == MLXSHIM_AXIS_TOKENS && in(1).axis == MLXSHIM_AXIS_TOKENS, "k and v are not one row a token");
      shape(in(0), {program_.max_tokens, layer.kv_heads, layer.key_dim}, "k");
      shape(in(1), {program_.max_tokens, layer.kv_heads, layer.value_dim}, "v");
      return;
    }
    case MLXSHIM_OP_ATTEND: {
      const auto& layer = batch(1);
      program_.layers[size_t(attribute(0))].read = true;
      floats(in(0), "q");
      finite(1, "scale");
      want(in(0).axis == MLXSHIM_AXIS_TOKENS && in(0).ndim == 3 && in(0).last() == layer.key_dim &&
               in(0).dims[1] % layer.kv_heads == 0,
           "q is ", in(0).print(), " for ", layer.kv_heads, " heads of ", layer.key_dim);
      like_with_last(in(0), layer.value_dim);
      return;
    }
    case MLXSHIM_OP_ADD:
    case MLXSHIM_OP_MULTIPLY:
    case MLXSHIM_OP_SWIGLU:
      floats(in(0), "an input");
      want(in(0) == in(1), "inputs of ", in(0).print(), " and ", in(1).print());
      want(out() == in(0), "the output is ", out().print(), " for inputs of ", in(0).print());
      return;
    case MLXSHIM_OP_SILU:
      floats(in(0), "x");
      want(out() == in(0), "the output is ", out().print(), " for an input of ", in(0).print());
      return;
    case MLXSHIM_OP_SLICE: {
      int64_t start = attribute(0), size = attribute(1), width = in(0).last();
      want(in(0).ndim > 1, "x has one dimension only");
      want(start >= 0 && size >= 1 && start <= width && size <= width - start, "columns ", start, " to ", start, "+",
           size, " of ", width);
      Type t = in(0);
      t.dims[size_t(t.ndim - 1)] = size;
      want(out() == t, "the output is ", out().print(), " for an input of ", in(0).print());
      sources_[size_t(op.first_output)] = sources_[size_t(op.inputs[0])];
      // A stored token is looked up by row, and rows stay rows.
      return;
    }
    case MLXSHIM_OP_RESHAPE:
      want(out().dtype == in(0).dtype && out().axis == in(0).axis && out().dims[0] == in(0).dims[0] &&
               out().elements() == in(0).elements(),
           "the output is ", out().print(), " for an input of ", in(0).print());
      sources_[size_t(op.first_output)] = sources_[size_t(op.inputs[0])];
      return;
    case MLXSHIM_OP_GATHER_ROWS:
      want(in(0).ndim == 2 && !program_.is_weight(op.inputs[0]), "x is ", in(0).print());
      want(in(1).dtype == kI32 && in(1).ndim == 1, "rows is ", in(1).print());
      demand(op.inputs[1], 0, in(0).dims[0], in(0).axis);
      want(out().dtype == in(0).dtype && out().axis == in(1).axis, "the output is ", out().print());
      shape(out(), {in(1).dims[0], in(0).dims[1]}, "the output");
      return;
    case MLXSHIM_OP_CAST:
      floats(in(0), "x");
      floats(out(), "the output");
      want(out().same_shape(in(0)), "the output is ", out().print(), " for an input of ", in(0).print());
      return;
    case MLXSHIM_OP_LOAD_TOKENS:
    case MLXSHIM_OP_STORE_TOKENS: check_tokens(); return;
    case MLXSHIM_OP_PENALIZE:
    case MLXSHIM_OP_BIAS:
    case MLXSHIM_OP_ARGMAX:
    case MLXSHIM_OP_SAMPLE: check_logits(op.facts->code); return;
  }
  throw Status(MLXSHIM_ERR_UNSUPPORTED, text("no rule for ", op.facts->name), number_);
}

void Checker::check_rope() const {
  int64_t dims = attribute(0);
  floats(in(0), "x");
  want(in(0).ndim == 3, "x is ", in(0).print());
  want(in(1).dtype == kI32 && in(1).ndim == 1 && in(1).axis == in(0).axis && in(1).dims[0] == in(0).dims[0],
       "positions is ", in(1).print(), " for x ", in(0).print());
  want(dims >= 2 && dims % 2 == 0 && dims <= in(0).last(), dims, " of ", in(0).last(), " dimensions are turned");
  want(attribute(1) == 0 || attribute(1) == 1, "traditional is ", attribute(1));
  finite(3, "scale");
  finite(4, "mscale");
  if (has(2)) {
    weight(2, "periods");
    want(in(2).dtype == kF32, "periods is ", in(2).print());
    shape(in(2), {dims / 2}, "periods");
  } else {
    finite(2, "base");
    want(op_->real(2) > 0, "base is not positive");
  }
  want(out() == in(0), "the output is ", out().print(), " for an input of ", in(0).print());
}

void Checker::check_experts() {
  const Op& op = *op_;
  switch (op.facts->code) {
    case MLXSHIM_OP_EXPERT_LINEAR: {
      int64_t width = quantized(2, 1), experts = in(2).dims[0], n = in(2).dims[1];
      const Type &x = in(0), &indices = in(1);
      floats(x, "x");
      want(indices.dtype == kI32 && indices.ndim == 2, "indices is ", indices.print());
      want(x.axis == indices.axis && x.dims[0] == indices.dims[0] && x.last() == width &&
               (x.ndim == 2 || (x.ndim == 3 && x.dims[1] == indices.dims[1])),
           "x is ", x.print(), " for indices ", indices.print(), " and w ", in(2).print());
      demand(op.inputs[1], 0, experts);
      if (has(5)) {
        weight(5, "bias");
        floats(in(5), "bias");
        shape(in(5), {experts, n}, "bias");
      }
      floats(out(), "the output");
      want(out().axis == x.axis, "the output is ", out().print());
      shape(out(), {x.dims[0], indices.dims[1], n}, "the output");
      return;
    }
    case MLXSHIM_OP_ROUTE: {
      const Type& x = in(0);
      floats(x, "logits");
      want(x.ndim == 2, "logits is ", x.print());
      want(attribute(0) >= 1 && attribute(0) <= x.last(), "the best ", attribute(0), " of ", x.last());
      want(attribute(1) == 0 || attribute(1) == 1, "normalize is ", attribute(1));
      want(out(0).dtype == kI32 && out(0).axis == x.axis && out(1).axis == x.axis, "the outputs are ", out(0).print(),
           " and ", out(1).print());
      floats(out(1), "the second output");
      shape(out(0), {x.dims[0], attribute(0)}, "the first output");
      shape(out(1), {x.dims[0], attribute(0)}, "the second output");
      sources_[size_t(op.first_output)] = {Source::kBounded, -1, -1, x.last()};
      return;
    }
    case MLXSHIM_OP_COMBINE: {
      const Type &y = in(0), &weights = in(1);
      floats(y, "y");
      floats(weights, "weights");
      want(y.ndim == 3 && y.axis == weights.axis, "y is ", y.print());
      shape(weights, {y.dims[0], y.dims[1]}, "weights");
      want(out().dtype == y.dtype && out().axis == y.axis, "the output is ", out().print());
      shape(out(), {y.dims[0], y.dims[2]}, "the output");
      return;
    }
  }
}

void Checker::check_tokens() {
  const Op& op = *op_;
  if (op.facts->code == MLXSHIM_OP_LOAD_TOKENS) {
    int32_t tokens = direct(0, "tokens");
    want(in(0).ndim <= 2, "tokens is ", in(0).print());
    want(program_.stores.empty(), "tokens are loaded after they are stored");
    int32_t slots = slots_input(1, in(0).axis, false);
    want(in(1).dims[0] == in(0).dims[0], "slots is ", in(1).print(), " for tokens ", in(0).print());
    want(out() == in(0), "the output is ", out().print(), " for tokens ", in(0).print());
    constexpr int64_t kAny = int64_t(1) << 32;
    program_.demands.push_back({tokens, -kAny, kAny, MLXSHIM_AXIS_FIXED, false, slots});
    sources_[size_t(op.first_output)] = {Source::kStored, tokens, slots};
    return;
  }
  int32_t v = op.inputs[0];
  want(in(0).dtype == kI32 && in(0).ndim == 1, "tokens is ", in(0).print());
  int32_t slots = slots_input(1, in(0).axis, true);
  want(in(1).dims[0] == in(0).dims[0], "slots is ", in(1).print(), " for tokens ", in(0).print());
  const Source& source = sources_[size_t(v)];
  want(source.kind == Source::kBounded || source.kind == Source::kInput, "tokens comes from no sampler or input");
  if (source.kind == Source::kInput) {
    want(program_.is_input(v), "tokens is no input of the program itself");
    demand(v, 0, int64_t(1) << 31);
  }
  program_.stores.push_back({slots, source.bound, source.input});
}

void Checker::check_logits(int64_t code) {
  const Type& logits = in(0);
  floats(logits, "logits");
  want(logits.ndim == 2, "logits is ", logits.print());
  auto beside = [&](size_t i, int64_t dtype, int64_t width, const char* what) {
    want(in(i).dtype == dtype && in(i).ndim == 2 && in(i).axis == logits.axis && in(i).dims[0] == logits.dims[0] &&
             (width == 0 || in(i).last() == width),
         what, " is ", in(i).print(), " for logits ", logits.print());
  };
  if (code == MLXSHIM_OP_PENALIZE || code == MLXSHIM_OP_BIAS) {
    beside(1, kI32, 0, code == MLXSHIM_OP_BIAS ? "ids" : "history");
    beside(2, kF32, code == MLXSHIM_OP_BIAS ? in(1).last() : 3, code == MLXSHIM_OP_BIAS ? "values" : "penalties");
    demand(op_->inputs[1], -1, logits.last());
    want(out() == logits, "the output is ", out().print(), " for logits ", logits.print());
    return;
  }
  if (code == MLXSHIM_OP_SAMPLE) beside(1, kF32, 5, "settings");
  want(out().dtype == kI32 && out().axis == logits.axis, "the output is ", out().print());
  shape(out(), {logits.dims[0]}, "the output");
  sources_[size_t(op_->first_output)] = {Source::kBounded, -1, -1, logits.last(), -1};
}

}  // namespace

void check_program(Program& program, std::span<const Type> weights, const StateShape* state) {
  for (size_t i = 0; i < program.weights.size(); i++) {
    int64_t index = program.weights[i];
    if (index < 0 || index >= int64_t(weights.size()))
      fail(MLXSHIM_ERR_PROGRAM, "the program uses weight ", index, " of a set of ", weights.size());
    program.types[size_t(program.input_count) + i] = weights[size_t(index)];
  }
  Checker(program, state).check();
}

}  // namespace mlxcel
