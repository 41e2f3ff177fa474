#include "fuse.h"

#include <algorithm>
#include <optional>

#include "cuda/gpu.h"

namespace mlxcel {

namespace {

constexpr int64_t kAny = int64_t(1) << 62;

// Who makes and who uses the values of a program.
class Flow {
 public:
  explicit Flow(const Program& program) : program_(program), makers_(program.types.size(), -1), uses_(makers_.size(), 0) {
    for (size_t i = 0; i < program.ops.size(); i++) {
      const Op& op = program.ops[i];
      for (int64_t k = 0; k < op.facts->outputs; k++) makers_[size_t(op.first_output + k)] = int64_t(i);
      for (int32_t v : op.inputs)
        if (v >= 0) uses_[size_t(v)]++;
    }
    for (int32_t v : program.outputs) uses_[size_t(v)]++;
  }

  // The number of the op of that code that makes the value for one user, -1 where it is not so.
  int64_t made_for_one(int32_t value, int64_t code) const {
    const int64_t op = makers_[size_t(value)];
    return op >= 0 && uses_[size_t(value)] == 1 && program_.ops[size_t(op)].facts->code == code ? op : -1;
  }

 private:
  const Program& program_;
  std::vector<int64_t> makers_;
  std::vector<int> uses_;
};

// A value that is a run of columns of another one.
struct Columns {
  int32_t source;
  int start;
  std::vector<size_t> members;
};

std::optional<Columns> columns(const Program& program, const Flow& flow, int32_t value) {
  const int64_t slice = flow.made_for_one(value, MLXSHIM_OP_SLICE);
  if (slice < 0) return std::nullopt;
  const Op& op = program.ops[size_t(slice)];
  return Columns{op.inputs[0], int(op.integer(0)), {size_t(slice)}};
}

// Queries, keys or values [T, heads, dim] on their way from the joined product.
struct Side {
  Columns from;
  int64_t norm = -1, rope = -1;  // op numbers, -1: none
  int32_t value;                 // at the end
};

std::optional<Side> side(const Program& program, const Flow& flow, int32_t value, bool turned) {
  Side s{{}, -1, -1, value};
  std::vector<size_t> members;
  auto back = [&](int64_t op) {
    members.push_back(size_t(op));
    return program.ops[size_t(op)].inputs[0];
  };
  if (turned) {
    s.rope = flow.made_for_one(value, MLXSHIM_OP_ROPE);
    if (s.rope < 0) return std::nullopt;
    value = back(s.rope);
    s.norm = flow.made_for_one(value, MLXSHIM_OP_RMS_NORM);
    if (s.norm >= 0) {
      if (!program.ops[size_t(s.norm)].has(1)) return std::nullopt;
      value = back(s.norm);
    }
  }
  const int64_t reshape = flow.made_for_one(value, MLXSHIM_OP_RESHAPE);
  if (reshape < 0) return std::nullopt;
  auto from = columns(program, flow, back(reshape));
  if (!from) return std::nullopt;
  s.from = *from;
  s.from.members.insert(s.from.members.end(), members.begin(), members.end());
  return s;
}

bool same_rotation(const Op& a, const Op& b) {
  return a.attributes == b.attributes && a.inputs[1] == b.inputs[1] && a.inputs[2] == b.inputs[2];
}

// From the joined product of queries, keys and values to the queries and the state.
std::optional<Fusion> attention_in(const Program& program, const Flow& flow, const StateShape& state, size_t write,
                                   size_t attend) {
  const Op &written = program.ops[write], &attended = program.ops[attend];
  auto q = side(program, flow, attended.inputs[0], true);
  auto k = side(program, flow, written.inputs[0], true), v = side(program, flow, written.inputs[1], false);
  if (!q || !k || !v || q->from.source != k->from.source || q->from.source != v->from.source) return std::nullopt;
  const Op &q_rope = program.ops[size_t(q->rope)], &k_rope = program.ops[size_t(k->rope)];
  const Type &q_type = program.types[size_t(q->value)], &k_type = program.types[size_t(k->value)],
             &v_type = program.types[size_t(v->value)], &x_type = program.types[size_t(q->from.source)];
  const int64_t dim = q_type.last();
  if (!same_rotation(q_rope, k_rope) || x_type.ndim != 2 || k_type.last() != dim || v_type.last() != dim ||
      dim > kAttentionInDim || x_type.dtype != state.dtype || q_type.dtype != x_type.dtype)
    return std::nullopt;

  AttentionIn facts{q->from.start, k->from.start, v->from.start, int(q_type.dims[1]), int(k_type.dims[1]), int(dim),
                    0, 0, int(q_rope.integer(0)), q_rope.integer(1) != 0, float(q_rope.real(2)), float(q_rope.real(3)),
                    float(q_rope.real(4))};
  auto norm_of = [&](int64_t op, float& eps) {
    if (op < 0) return int32_t(-1);
    eps = float(program.ops[size_t(op)].real(0));
    return program.ops[size_t(op)].inputs[1];
  };
  const int32_t q_norm = norm_of(q->norm, facts.q_eps), k_norm = norm_of(k->norm, facts.k_eps);
  for (int32_t norm : {q_norm, k_norm})
    if (norm >= 0 && program.types[size_t(norm)].dtype != x_type.dtype) return std::nullopt;
  const int32_t source = q->from.source, positions = q_rope.inputs[1], periods = q_rope.inputs[2];
  const size_t rope = size_t(q->rope);
  const int64_t layer = written.integer(0);

  Fusion fusion{{write}, {}, int64_t(kAttentionInSpans)};
  for (const Side* s : {&*q, &*k, &*v})
    fusion.members.insert(fusion.members.end(), s->from.members.begin(), s->from.members.end());
  std::sort(fusion.members.begin(), fusion.members.end());
  if (fusion.members.back() != write) return std::nullopt;
  fusion.run = [=](Step& step) {
    auto maybe = [&](int32_t value) { return value >= 0 ? std::optional(step.value(value)) : std::nullopt; };
    KvWrites writes = plan_kv_writes(step, layer);
    step.set(step.program.ops[rope],
             gpu_attention_in(facts, step.value(source), step.value(positions), maybe(q_norm), maybe(k_norm),
                              maybe(periods), std::move(writes.caches), std::move(writes.spans), step.stream));
  };
  return fusion;
}

std::optional<Fusion> add_norm(const Program& program, size_t add) {
  if (add + 1 >= program.ops.size()) return std::nullopt;
  const Op &sum = program.ops[add], &norm = program.ops[add + 1];
  const Type& type = program.types[size_t(sum.first_output)];
  if (norm.facts->code != MLXSHIM_OP_RMS_NORM || norm.inputs[0] != sum.first_output || !norm.has(1) || type.ndim != 2 ||
      program.types[size_t(norm.inputs[1])].dtype != type.dtype)
    return std::nullopt;
  auto run = [add, eps = float(norm.real(0))](Step& step) {
    const Op &sum = step.program.ops[add], &norm = step.program.ops[add + 1];
    auto a = step.in(sum, 0), b = step.in(sum, 1), w = step.in(norm, 1);
    GpuLaunch launch{"add_norm", unsigned(a.shape()[0]), 1, a.shape()[1] > 1024 ? 512u : 256u,
                     {a.shape()[1], gpu_dtype(a.dtype()), number_bits(eps)}};
    auto made = gpu_calls(launch, {a, b, w}, {a.shape(), a.shape()}, {a.dtype(), a.dtype()}, step.stream);
    step.set(sum, made[0]);
    step.set(norm, made[1]);
  };
  return Fusion{{add, add + 1}, run, kAny};
}

// gate and up are halves of a joined product.
std::optional<Fusion> swiglu(const Program& program, const Flow& flow, size_t number) {
  const Op& op = program.ops[number];
  auto gate = columns(program, flow, op.inputs[0]), up = columns(program, flow, op.inputs[1]);
  const Type& type = program.types[size_t(op.first_output)];
  if (!gate || !up || gate->source != up->source || type.ndim != 2) return std::nullopt;
  Fusion fusion{{gate->members[0], up->members[0], number}, {}, kAny};
  std::sort(fusion.members.begin(), fusion.members.end());
  fusion.run = [number, source = gate->source, gate_at = gate->start, up_at = up->start](Step& step) {
    auto x = step.value(source);
    const Op& op = step.program.ops[number];
    const mx::Shape shape = step.shape_out(op);
    GpuLaunch launch{"swiglu_joined", unsigned(shape[0]), unsigned(shape[1] + 255) / 256, 256,
                     {x.shape()[1], shape[1], gpu_dtype(x.dtype()), gate_at, up_at}};
    step.set(op, gpu_call(launch, {x}, shape, x.dtype(), step.stream));
  };
  return fusion;
}

}  // namespace

std::vector<Fusion> find_fusions(const Program& program, const StateShape* state) {
  const Flow flow(program);
  std::vector<Fusion> all;
  auto keep = [&](std::optional<Fusion> found) {
    if (!found) return;
    const size_t value = size_t(program.ops[found->members.back()].first_output);
    // Steps without rows leave ops of the rows' axis out.
    const bool writes = program.ops[found->members.back()].facts->outputs == 0;
    if (writes || program.types[value].axis == MLXSHIM_AXIS_TOKENS) all.push_back(std::move(*found));
  };
  for (size_t i = 0; i < program.ops.size(); i++) {
    const Op& op = program.ops[i];
    switch (op.facts->code) {
      case MLXSHIM_OP_KV_WRITE:
        if (state && i + 1 < program.ops.size() && program.ops[i + 1].facts->code == MLXSHIM_OP_ATTEND)
          keep(attention_in(program, flow, *state, i, i + 1));
        break;
      case MLXSHIM_OP_ADD: keep(add_norm(program, i)); break;
      case MLXSHIM_OP_SWIGLU: keep(swiglu(program, flow, i)); break;
    }
  }
  return all;
}

}  // namespace mlxcel
