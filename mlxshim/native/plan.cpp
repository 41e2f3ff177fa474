#include "plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "dtype.h"
#include "status.h"

namespace mlxcel::native {

namespace {

// What is known of a value when ops that use it are planned.
struct Known {
  Rows rows;
  bool ready = false;
};

class Planner {
 public:
  Planner(const Program& program, NativeWeights& weights, const State* state)
      : program_(program),
        weights_(weights),
        state_(state),
        known_(program.types.size()),
        uses_(program.types.size()),
        user_(program.types.size(), -1),
        done_(program.ops.size()) {
    plan_.places.resize(program.types.size());
    for (size_t i = 0; i < program.ops.size(); i++)
      for (int32_t v : program.ops[i].inputs)
        if (v >= 0) {
          uses_[size_t(v)]++;
          user_[size_t(v)] = int32_t(i);
        }
    for (int32_t v : program.outputs) uses_[size_t(v)] += 2;  // never fused away
  }

  Plan plan() {
    for (size_t i = 0; i < program_.ops.size(); i++) {
      if (done_[i]) continue;
      try {
        add(program_.ops[i]);
      } catch (const Status& e) {
        throw Status(e.code, e.what(), int64_t(i));
      }
    }
    const int end = int(plan_.stages.size());
    for (int32_t v : program_.outputs) {
      plan_.outputs.push_back(rows(v));
      use(rows(v).place, std::max(end, int(plan_.stages.size())));
    }
    place_work();
    return std::move(plan_);
  }

 private:
  // ---- Values ----

  const Type& type(int32_t v) const { return program_.types[size_t(v)]; }

  // A value's rows: what its first dimension counts, but a fixed vector of floats is one row.
  Extent extent(int32_t v) const {
    const Type& t = type(v);
    if (t.axis == MLXSHIM_AXIS_FIXED && t.ndim == 1 && is_float(t.dtype)) return {MLXSHIM_AXIS_FIXED, 1};
    return {t.axis, t.axis == MLXSHIM_AXIS_FIXED ? t.dims[0] : 1};
  }
  int64_t recorded(const Extent& e) const {
    return e.live({program_.max_tokens, program_.max_rows, program_.max_sequences});
  }
  int64_t width(int32_t v) const {
    const Extent e = extent(v);
    const int64_t rows = e.axis == MLXSHIM_AXIS_FIXED ? e.fixed : type(v).dims[0];
    return rows ? type(v).elements() / rows : 0;
  }
  int64_t element_size(int32_t v) const {
    return is_float(type(v).dtype) ? int64_t(sizeof(float)) : dtype_size(type(v).dtype);
  }
  // The vectors along the last dimension that a row holds.
  int64_t vectors(int32_t v) const { return width(v) / type(v).last(); }

  // Ops along the last dimension need it to be another one than that of the rows.
  void want_vectors(int32_t v) const {
    if (width(v) % type(v).last() != 0)
      fail(MLXSHIM_ERR_UNSUPPORTED, "native has no op over the numbers of ", type(v).print(),
           ", whose only dimension counts rows");
  }

  // The rows of a value that is there already: an input, a weight or what an op made.
  Rows rows(int32_t v) {
    Known& known = known_[size_t(v)];
    if (known.ready) return known.rows;
    known.ready = true;
    known.rows = {v, width(v), width(v)};
    PlaceFacts& facts = plan_.places[size_t(v)];
    if (program_.is_weight(v)) {
      const int64_t index = program_.weights[size_t(v - program_.input_count)];
      facts.kind = PlaceFacts::kConstant;
      facts.constant = is_float(type(v).dtype) ? reinterpret_cast<const char*>(weights_.floats(index))
                                               : static_cast<const char*>(weights_.elements(index));
    } else {
      if (!program_.is_input(v)) fail(MLXSHIM_ERR_INTERNAL, "value ", v, " is planned before it is made");
      facts.kind = PlaceFacts::kInput;
      facts.input = v;
      if (is_float(type(v).dtype) && type(v).dtype != MLXSHIM_DTYPE_F32) {
        const Rows given = known.rows, wide = work(extent(v), width(v) * int64_t(sizeof(float)), width(v));
        add_rows(extent(v), make_widen(given, type(v).dtype, wide), {given}, {wide});
        known_[size_t(v)].rows = wide;
      }
    }
    return known_[size_t(v)].rows;
  }

  // Rows for a value that an op is about to make.
  Rows make(int32_t v) {
    Rows made{v, width(v), width(v)};
    PlaceFacts& facts = plan_.places[size_t(v)];
    facts.kind = PlaceFacts::kWork;
    facts.bytes = size_t(recorded(extent(v)) * width(v) * element_size(v));
    known_[size_t(v)] = {made, true};
    return made;
  }

  // Rows of work memory besides the values.
  Rows work(const Extent& e, int64_t row_bytes, int64_t width) {
    PlaceFacts facts;
    facts.kind = PlaceFacts::kWork;
    facts.bytes = size_t(recorded(e) * row_bytes);
    plan_.places.push_back(facts);
    return {Place(plan_.places.size()) - 1, width, width};
  }

  // The value v is a part of another one's rows.
  void view(int32_t v, const Rows& of, int64_t start) {
    PlaceFacts& facts = plan_.places[size_t(v)];
    facts.kind = PlaceFacts::kView;
    facts.base = of.place;
    facts.offset = start * element_size(v);
    known_[size_t(v)] = {{v, width(v), of.stride}, true};
  }

  // The value v is what another one is.
  void alias(int32_t v, const Rows& of) { known_[size_t(v)] = {of, true}; }

  // ---- Stages ----

  void use(Place place, int stage) {
    PlaceFacts& facts = plan_.places[size_t(place)];
    if (facts.kind == PlaceFacts::kView) return use(facts.base, stage);
    if (facts.first < 0) facts.first = stage;
    facts.last = std::max(facts.last, stage);
  }

  Place root(Place place) const {
    const PlaceFacts& facts = plan_.places[size_t(place)];
    return facts.kind == PlaceFacts::kView ? root(facts.base) : place;
  }

  // Whether the stage that is open makes something in this place.
  bool made_here(const Rows& rows) const {
    return std::find(open_made_.begin(), open_made_.end(), root(rows.place)) != open_made_.end();
  }

  void add_rows(const Extent& e, RowOpPointer op, std::vector<Rows> reads, std::vector<Rows> writes) {
    if (!open_ || !(open_->extent == e)) {
      auto stage = std::make_unique<RowStage>(e);
      open_ = stage.get();
      open_made_.clear();
      plan_.stages.push_back(std::move(stage));
      plan_.stage_extents.push_back(e);
    }
    open_->ops.push_back(std::move(op));
    const int number = int(plan_.stages.size()) - 1;
    for (const Rows& r : reads) use(r.place, number);
    for (const Rows& r : writes) {
      use(r.place, number);
      open_made_.push_back(root(r.place));
    }
  }

  void add_stage(const Extent& e, StagePointer stage, std::vector<Rows> reads, std::vector<Rows> writes) {
    close();
    plan_.stages.push_back(std::move(stage));
    plan_.stage_extents.push_back(e);
    const int number = int(plan_.stages.size()) - 1;
    for (const Rows& r : reads) use(r.place, number);
    for (const Rows& r : writes) use(r.place, number);
  }

  void close() {
    open_ = nullptr;
    open_loads_ = false;
  }

  // ---- Ops ----

  const Matrix& matrix(const Op& op, size_t w) {
    auto index = [&](size_t i) {
      return op.has(i) ? program_.weights[size_t(op.inputs[i] - program_.input_count)] : -1;
    };
    return weights_.matrix({index(w), index(w + 1), index(w + 2), {op.integer(0), op.integer(1), op.integer(2)}});
  }
  const float* floats(const Op& op, size_t i) {
    return op.has(i) ? weights_.floats(program_.weights[size_t(op.inputs[i] - program_.input_count)]) : nullptr;
  }

  // The prepared rows of x for a matrix: those of an earlier product where they are of the same kind.
  Rows prepared(int32_t x, const Matrix& m) {
    const Rows from = rows(x);
    for (const auto& p : prepared_[from.place])
      if (p.matrix->prepared_like(m)) return p.rows;
    const int64_t n = vectors(x), bytes = int64_t(m.prepared_bytes()) * n;
    const Rows to = work(extent(x), bytes, bytes);
    add_rows(extent(x), make_prepare(from, n, m, to), {from}, {to});
    prepared_[from.place].push_back({&m, to});
    return to;
  }

  // The only op that uses v, if it is of a kind; else null.
  const Op* only_user(int32_t v, int64_t code) const {
    if (uses_[size_t(v)] != 1) return nullptr;
    const Op& op = program_.ops[size_t(user_[size_t(v)])];
    return op.facts->code == code ? &op : nullptr;
  }
  void finish(const Op& op) { done_[size_t(&op - program_.ops.data())] = true; }

  void add(const Op& op);
  void add_linear(const Op& op);
  void add_expert_linear(const Op& op);
  const Op* gated(int32_t v, const Matrix& m) const;
  void add_rope(const Op& op);
  void add_slice(const Op& op);
  void add_reshape(const Op& op);

  // ---- Memory ----

  void place_work();

  const Program& program_;
  NativeWeights& weights_;
  const State* state_;
  Plan plan_;
  std::vector<Known> known_;
  std::vector<int> uses_;
  std::vector<int32_t> user_;
  std::vector<bool> done_;  // ops that an earlier one does as well

  RowStage* open_ = nullptr;
  std::vector<Place> open_made_;
  bool open_loads_ = false;

  struct Prepared {
    const Matrix* matrix;
    Rows rows;
  };
  std::map<Place, std::vector<Prepared>> prepared_;
  struct AngleKey {
    int32_t positions, periods;
    int64_t dims, base, scale;
    auto operator<=>(const AngleKey&) const = default;
  };
  std::map<AngleKey, Rows> angles_;
};

// The op silu(first half of v) * second half of v, if that is all that v is for.
const Op* Planner::gated(int32_t v, const Matrix& m) const {
  const int64_t n = type(v).last() / 2;
  if (uses_[size_t(v)] != 2 || vectors(v) != 1 || type(v).last() % 2 != 0 || n % m.row_block() != 0) return nullptr;
  std::array<const Op*, 2> halves{};
  for (const Op& op : program_.ops)
    if (op.facts->code == MLXSHIM_OP_SLICE && op.inputs[0] == v && op.integer(1) == n)
      if (const int64_t start = op.integer(0); start == 0 || start == n) halves[start ? 1 : 0] = &op;
  if (!halves[0] || !halves[1]) return nullptr;
  const Op* swiglu = only_user(halves[0]->first_output, MLXSHIM_OP_SWIGLU);
  if (!swiglu || only_user(halves[1]->first_output, MLXSHIM_OP_SWIGLU) != swiglu) return nullptr;
  return swiglu->inputs[0] == halves[0]->first_output ? swiglu : nullptr;
}

void Planner::add_linear(const Op& op) {
  const int32_t x = op.inputs[0], y = op.first_output;
  want_vectors(x);
  const Matrix& m = matrix(op, 1);
  Product product;
  product.extent = extent(x);
  product.vectors = vectors(x);
  product.matrix = &m;
  product.bias = floats(op, 4);
  product.prepared = prepared(x, m);
  std::vector<Rows> reads{product.prepared}, writes;
  if (const Op* swiglu = gated(y, m)) {
    for (int32_t half : swiglu->inputs)
      for (const Op& slice : program_.ops)
        if (slice.first_output == half && slice.facts->outputs > 0) finish(slice);
    finish(*swiglu);
    product.halves = make(y);
    product.out = make(swiglu->first_output);
    writes = {*product.halves, product.out};
  } else {
    int32_t out = y;
    if (const Op* sum = only_user(y, MLXSHIM_OP_ADD)) {
      const int32_t other = sum->inputs[0] == y ? sum->inputs[1] : sum->inputs[0];
      if (other < y && vectors(y) == 1) {
        product.residual = rows(other);
        reads.push_back(*product.residual);
        finish(*sum);
        out = sum->first_output;
      }
    }
    product.out = make(out);
    writes = {product.out};
  }
  const Extent e = product.extent;
  add_stage(e, make_product(std::move(product)), std::move(reads), std::move(writes));
}

void Planner::add_expert_linear(const Op& op) {
  const int32_t x = op.inputs[0];
  const Matrix& m = matrix(op, 2);
  ExpertProduct product;
  product.extent = extent(op.inputs[1]);
  product.recorded = recorded(product.extent);
  product.used = type(op.inputs[1]).dims[1];
  product.shared = type(x).ndim == 2;
  product.matrix = &m;
  product.bias = floats(op, 5);
  product.indices = rows(op.inputs[1]);
  product.prepared = prepared(x, m);
  product.out = make(op.first_output);
  std::vector<Rows> reads{product.prepared, product.indices}, writes{product.out};
  const Extent e = product.extent;
  add_stage(e, make_expert_product(std::move(product)), std::move(reads), std::move(writes));
}

void Planner::add_rope(const Op& op) {
  const int64_t dims = op.integer(0), pairs = dims / 2;
  const Extent e = extent(op.inputs[0]);
  const AngleKey key{op.inputs[1], op.inputs[2], dims, op.attributes[2], op.attributes[3]};
  auto known = angles_.find(key);
  if (known == angles_.end()) {
    Angles angles{{}, float(op.real(3))};
    const float* given = floats(op, 2);
    for (int64_t i = 0; i < pairs; i++)
      angles.periods.push_back(given ? given[i] : float(std::pow(op.real(2), 2.0 * double(i) / double(dims))));
    const Rows positions = rows(op.inputs[1]), made = work(e, dims * int64_t(sizeof(float)), dims);
    add_rows(e, make_angles(positions, std::move(angles), made), {positions}, {made});
    known = angles_.emplace(key, made).first;
  }
  const Rows x = rows(op.inputs[0]), angles = known->second, y = make(op.first_output);
  const Turn turn{type(op.inputs[0]).dims[1], type(op.inputs[0]).last(), dims, op.integer(1) != 0, float(op.real(4))};
  add_rows(e, make_rope(x, angles, turn, y), {x, angles}, {y});
}

void Planner::add_slice(const Op& op) {
  const int32_t v = op.inputs[0];
  const Rows x = rows(v);
  if (vectors(v) == 1) return view(op.first_output, x, op.integer(0));
  const Rows y = make(op.first_output);
  add_rows(extent(v), make_copy(x, vectors(v), op.integer(0), y, element_size(v)), {x}, {y});
}

void Planner::add_reshape(const Op& op) {
  const int32_t v = op.inputs[0], y = op.first_output;
  const Rows x = rows(v);
  if (extent(v) == extent(y)) return view(y, x, 0);
  // A fixed vector of floats, which is one row, to or from as many rows: the elements lie without gaps.
  view(y, x, 0);
  known_[size_t(y)].rows.stride = width(y);
}

void Planner::add(const Op& op) {
  const int32_t first = op.inputs.empty() ? -1 : op.inputs[0], out = op.first_output;
  auto in = [&](size_t i) { return rows(op.inputs[i]); };
  // An op from the rows of its inputs to those of its output.
  auto simple = [&](auto make_op) {
    std::vector<Rows> reads;
    for (size_t i = 0; i < op.inputs.size(); i++)
      if (op.has(i) && !(op.facts->code == MLXSHIM_OP_RMS_NORM && i == 1)) reads.push_back(in(i));
    const Rows y = make(out);
    add_rows(extent(out), make_op(reads, y), reads, {y});
  };
  switch (op.facts->code) {
    case MLXSHIM_OP_EMBED: {
      const Matrix& table = matrix(op, 1);
      const Rows ids = in(0), y = make(out);
      return add_rows(extent(out), make_embed(ids, table, y), {ids}, {y});
    }
    case MLXSHIM_OP_LINEAR: return add_linear(op);
    case MLXSHIM_OP_EXPERT_LINEAR: return add_expert_linear(op);
    case MLXSHIM_OP_RMS_NORM:
      want_vectors(first);
      return simple(
          [&](auto& x, Rows y) { return make_rms_norm(x[0], vectors(first), floats(op, 1), float(op.real(0)), y); });
    case MLXSHIM_OP_ROPE: return add_rope(op);
    case MLXSHIM_OP_KV_WRITE:
      return add_rows(extent(first), make_kv_write(in(0), in(1), op.integer(0)), {in(0), in(1)}, {});
    case MLXSHIM_OP_ATTEND: {
      const Rows q = in(0), y = make(out);
      const Attention attention{op.integer(0), type(first).dims[1], float(op.real(1)), q, y};
      return add_stage(extent(first), make_attention(attention, state_->shape.layers[size_t(op.integer(0))]), {q}, {y});
    }
    case MLXSHIM_OP_ADD:
      return simple([](auto& x, Rows y) { return make_binary("add", &VectorKernels::add, x[0], x[1], y); });
    case MLXSHIM_OP_MULTIPLY:
      return simple([](auto& x, Rows y) { return make_binary("multiply", &VectorKernels::multiply, x[0], x[1], y); });
    case MLXSHIM_OP_SWIGLU:
      return simple([](auto& x, Rows y) { return make_binary("swiglu", &VectorKernels::swiglu, x[0], x[1], y); });
    case MLXSHIM_OP_SILU: return simple([](auto& x, Rows y) { return make_silu(x[0], y); });
    case MLXSHIM_OP_SLICE: return add_slice(op);
    case MLXSHIM_OP_RESHAPE: return add_reshape(op);
    case MLXSHIM_OP_GATHER_ROWS: {
      const Rows x = in(0), which = in(1);
      if (made_here(x)) close();  // other rows than its own
      const Rows y = make(out);
      return add_rows(extent(out), make_gather_rows(x, which, y, element_size(out)), {x, which}, {y});
    }
    case MLXSHIM_OP_ROUTE: {
      const Rows logits = in(0), indices = make(out), weights = make(out + 1);
      return add_rows(extent(first), make_route(logits, op.integer(0), op.integer(1) != 0, indices, weights), {logits},
                      {indices, weights});
    }
    case MLXSHIM_OP_COMBINE: return simple([](auto& x, Rows y) { return make_combine(x[0], x[1], y); });
    case MLXSHIM_OP_CAST: {
      const int64_t to = type(out).dtype;
      if (to == MLXSHIM_DTYPE_F32 || to == MLXSHIM_DTYPE_F64 || to == type(first).dtype) return alias(out, in(0));
      return simple([&](auto& x, Rows y) { return make_cast(x[0], to, y); });
    }
    case MLXSHIM_OP_LOAD_TOKENS:
      simple([](auto& x, Rows y) { return make_load_tokens(x[0], x[1], y); });
      open_loads_ = true;
      return;
    case MLXSHIM_OP_STORE_TOKENS:
      if (open_loads_) close();  // another row may load the token that this one stores
      return add_rows(extent(first), make_store_tokens(in(0), in(1)), {in(0), in(1)}, {});
    case MLXSHIM_OP_PENALIZE: return simple([](auto& x, Rows y) { return make_penalize(x[0], x[1], x[2], y); });
    case MLXSHIM_OP_BIAS: return simple([](auto& x, Rows y) { return make_bias(x[0], x[1], x[2], y); });
    case MLXSHIM_OP_ARGMAX: return simple([](auto& x, Rows y) { return make_argmax(x[0], y); });
    case MLXSHIM_OP_SAMPLE: return simple([](auto& x, Rows y) { return make_sample(x[0], x[1], y); });
  }
  fail(MLXSHIM_ERR_UNSUPPORTED, "native has no ", op.facts->name);
}

// Gives every place of work memory the lowest offset that no place has which is in use at the same time.
void Planner::place_work() {
  constexpr size_t kAlign = 64;
  std::vector<Place> all;
  for (size_t i = 0; i < plan_.places.size(); i++)
    if (plan_.places[i].kind == PlaceFacts::kWork && plan_.places[i].first >= 0) all.push_back(Place(i));
  std::stable_sort(all.begin(), all.end(),
                   [&](Place a, Place b) { return plan_.places[size_t(a)].bytes > plan_.places[size_t(b)].bytes; });
  std::vector<Place> placed;  // by offset
  for (Place p : all) {
    PlaceFacts& mine = plan_.places[size_t(p)];
    size_t at = 0;
    for (Place q : placed) {
      const PlaceFacts& other = plan_.places[size_t(q)];
      if (other.last < mine.first || mine.last < other.first) continue;
      if (at + mine.bytes <= size_t(other.offset)) break;
      at = std::max(at, (size_t(other.offset) + other.bytes + kAlign - 1) / kAlign * kAlign);
    }
    mine.offset = int64_t(at);
    plan_.arena_bytes = std::max(plan_.arena_bytes, at + mine.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), p,
                                   [&](Place a, Place b) {
                                     return plan_.places[size_t(a)].offset < plan_.places[size_t(b)].offset;
                                   }),
                  p);
  }
}

}  // namespace

Plan make_plan(const Program& program, NativeWeights& weights, const State* state) {
  return Planner(program, weights, state).plan();
}

}  // namespace mlxcel::native
