#include <limits>

#include "dtype.h"
#include "program.h"
#include "status.h"

namespace mlxcel {

namespace {

// No array of a program may have more elements than this, so that products never overflow.
constexpr int64_t kMaxElements = int64_t(1) << 40;
constexpr int64_t kMaxDim = std::numeric_limits<int32_t>::max();

class Decoder {
 public:
  explicit Decoder(std::span<const int64_t> words) : words_(words) {}

  Program decode() {
    if (next() != MLXSHIM_PROGRAM_MAGIC) bad("does not begin with the magic number");
    if (int64_t version = next(); version != MLXSHIM_PROGRAM_VERSION)
      fail(MLXSHIM_ERR_UNSUPPORTED, "the program has version ", version, ", this library knows ",
           MLXSHIM_PROGRAM_VERSION);
    int64_t inputs = count("inputs"), weights = count("weights"), ops = count("ops"), outputs = count("outputs");
    program_.max_tokens = limit("max_tokens", 1);
    program_.max_rows = limit("max_rows", 0);
    program_.max_sequences = limit("max_sequences", 1);

    program_.input_count = int32_t(inputs);
    program_.weight_count = int32_t(weights);
    for (int64_t i = 0; i < inputs; i++) program_.types.push_back(type());
    for (int64_t i = 0; i < weights; i++) program_.weights.push_back(next());
    program_.types.resize(size_t(inputs + weights));
    for (number_ = 0; number_ < ops; number_++) op();
    number_ = -1;
    for (int64_t i = 0; i < outputs; i++) program_.outputs.push_back(value());
    if (at_ != words_.size()) bad("has ", words_.size() - at_, " words too many");
    return std::move(program_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    throw Status(MLXSHIM_ERR_PROGRAM, text("the program ", parts..., " (word ", at_, ")"), number_);
  }

  int64_t next() {
    if (at_ == words_.size()) bad("ends too early");
    return words_[at_++];
  }

  // A count of things that each take a word or more.
  int64_t count(const char* what) {
    int64_t n = next();
    if (n < 0 || n > int64_t(words_.size() - at_)) bad("says that it has ", n, " ", what);
    return n;
  }

  int64_t limit(const char* what, int64_t low) {
    int64_t n = next();
    if (n < low || n >= kMaxDim) bad("has ", what, " = ", n);
    return n;
  }

  int32_t value() {
    int64_t v = next();
    if (v < 0 || v >= int64_t(program_.types.size()))
      bad("uses value ", v, " where ", program_.types.size(), " are made");
    return int32_t(v);
  }

  Type type() {
    Type t;
    t.dtype = next();
    if (dtype_size(t.dtype) == 0) bad("has a type of dtype ", t.dtype);
    t.axis = next();
    if (t.axis < MLXSHIM_AXIS_FIXED || t.axis > MLXSHIM_AXIS_OFFSETS) bad("has a type of axis ", t.axis);
    int64_t ndim = next();
    if (ndim < 1 || ndim > MLXSHIM_MAX_DIMS) bad("has a type of ", ndim, " dimensions");
    t.ndim = int(ndim);
    int64_t elements = 1;
    for (size_t i = 0; i < size_t(ndim); i++) {
      int64_t dim = next();
      if (dim < 1 || dim > kMaxDim) bad("has a type with the dimension ", dim);
      if (elements > kMaxElements / dim) bad("has a type that is too large");
      elements *= dim;
      t.dims[i] = dim;
    }
    Counts recorded{program_.max_tokens, program_.max_rows, program_.max_sequences};
    if (t.axis != MLXSHIM_AXIS_FIXED && t.dims[0] != recorded.along(t.axis))
      bad("has a type whose first dimension is ", t.dims[0], " where its axis has ", recorded.along(t.axis));
    return t;
  }

  void op() {
    Op op;
    int64_t code = next();
    op.facts = op_facts(code);
    if (!op.facts) throw Status(MLXSHIM_ERR_UNSUPPORTED, text("this library has no opcode ", code), number_);
    const OpFacts& facts = *op.facts;

    int64_t n = count("inputs");
    if (n < facts.min_inputs || n > facts.max_inputs) bad("has a ", facts.name, " of ", n, " inputs");
    op.inputs.assign(size_t(facts.max_inputs), -1);
    for (size_t i = 0; i < size_t(n); i++) {
      if (int(i) >= facts.min_inputs && at_ < words_.size() && words_[at_] == -1)
        at_++;  // an optional one that is absent
      else
        op.inputs[i] = value();
    }

    int64_t m = count("attributes");
    if (m != facts.attributes) bad("has a ", facts.name, " of ", m, " attributes");
    for (int64_t i = 0; i < m; i++) op.attributes.push_back(next());

    int64_t k = count("outputs");
    if (k != facts.outputs) bad("has a ", facts.name, " of ", k, " outputs");
    std::vector<Type> made;  // an op must not use its own outputs
    for (int64_t i = 0; i < k; i++) made.push_back(type());
    op.first_output = int32_t(program_.types.size());
    program_.types.insert(program_.types.end(), made.begin(), made.end());
    program_.ops.push_back(std::move(op));
  }

  std::span<const int64_t> words_;
  size_t at_ = 0;
  int64_t number_ = -1;  // of the op being read
  Program program_;
};

}  // namespace

Program decode_program(std::span<const int64_t> words) {
  if (words.size() >= size_t(kMaxDim)) fail(MLXSHIM_ERR_PROGRAM, "the program is too long");
  return Decoder(words).decode();
}

}  // namespace mlxcel
