#include "step.h"

#include "status.h"

namespace mlxcel {

mx::array Step::value(int32_t v) {
  if (program.is_weight(v)) return weights_[size_t(v - program.input_count)];
  auto& slot = values_[size_t(v)];
  if (!slot) {
    if (!program.is_input(v)) fail(MLXSHIM_ERR_INTERNAL, "value ", v, " is used before it is made");
    const Type& type = program.types[size_t(v)];
    slot = from_host(run.inputs[size_t(v)], live_shape(type, run.counts), to_mlx(type.dtype));
  }
  return *slot;
}

void Step::set(const Op& op, mx::array made, size_t i) {
  const Type& type = type_out(op, i);
  if (made.shape() != live_shape(type, run.counts))
    fail(MLXSHIM_ERR_COMPUTE, op.facts->name, " made an array of another shape than the program's ", type.print());
  // MLX's indices are u32, the ABI's i32: below 2^31 they have the same bits.
  mx::Dtype want = to_mlx(type.dtype);
  if (made.dtype() != want && !(want == mx::int32 && made.dtype() == mx::uint32)) made = mx::astype(made, want, stream);
  bytes_ += int64_t(made.nbytes());
  values_[size_t(op.first_output) + i] = std::move(made);
}

Cache& Step::cache(int64_t slot, int64_t layer) {
  auto [it, fresh] = caches_.try_emplace({slot, layer});
  if (fresh) it->second = state_->cache(slot, layer);
  return it->second;
}

mx::array& Step::last_tokens() {
  if (!last_tokens_) last_tokens_ = state_->last_tokens;
  return *last_tokens_;
}

mx::array Step::window_mask(int64_t rows, int64_t columns, int64_t window) {
  auto it = masks_.find({rows, columns, window});
  if (it != masks_.end()) return it->second;
  // Query i stands at column columns - rows + i and sees the columns (at - window, at].
  auto at = mx::expand_dims(mx::arange(int(columns - rows), int(columns), 1, mx::int32, stream), 1, stream);
  auto column = mx::expand_dims(mx::arange(0, int(columns), 1, mx::int32, stream), 0, stream);
  auto seen = mx::less_equal(column, at, stream);
  auto near = mx::greater(column, mx::subtract(at, mx::array(int32_t(window)), stream), stream);
  return masks_.emplace(std::array<int64_t, 3>{rows, columns, window}, mx::logical_and(seen, near, stream))
      .first->second;
}

void Step::add_touched(std::vector<mx::array>& roots) const {
  for (const auto& [key, cache] : caches_)
    if (cache.keys) roots.insert(roots.end(), {*cache.keys, *cache.values});
  if (last_tokens_) roots.push_back(*last_tokens_);
}

void Step::enqueue_piece(std::vector<mx::array> more) {
  if (!pace_ || bytes_ < piece_) return;
  std::vector<mx::array> roots = std::move(more);
  for (const auto& value : values_)
    if (value) roots.push_back(*value);
  add_touched(roots);
  std::erase_if(roots, [](const mx::array& a) { return a.status() != mx::array::Status::unscheduled; });
  pace_->enqueue(std::move(roots));
  bytes_ = 0;
  in_pieces_ = true;
}

void Step::enqueue_rest(std::vector<mx::array> outputs) {
  add_touched(outputs);
  values_.clear();
  // A step that is small may wait behind others, so that the GPU always has work.
  in_pieces_ ? pace_->enqueue(std::move(outputs)) : mx::async_eval(std::move(outputs));
}

void Step::commit() {
  for (auto& [key, cache] : caches_) state_->cache(key.first, key.second) = std::move(cache);
  if (last_tokens_) state_->last_tokens = *last_tokens_;
}

OpRunner runner_of(int64_t opcode) {
  switch (opcode) {
    case MLXSHIM_OP_EMBED: return {run_embed};
    case MLXSHIM_OP_LINEAR: return {run_linear, prepare_linear};
    case MLXSHIM_OP_EXPERT_LINEAR: return {run_expert_linear, prepare_expert_linear};
    case MLXSHIM_OP_RMS_NORM: return {run_rms_norm};
    case MLXSHIM_OP_ROPE: return {run_rope, prepare_rope};
    case MLXSHIM_OP_KV_WRITE: return {run_kv_write};
    case MLXSHIM_OP_ATTEND: return {run_attend, prepare_attend};
    case MLXSHIM_OP_ADD: return {run_add};
    case MLXSHIM_OP_MULTIPLY: return {run_multiply};
    case MLXSHIM_OP_SILU: return {run_silu};
    case MLXSHIM_OP_SWIGLU: return {run_swiglu};
    case MLXSHIM_OP_SLICE: return {run_slice};
    case MLXSHIM_OP_RESHAPE: return {run_reshape};
    case MLXSHIM_OP_GATHER_ROWS: return {run_gather_rows};
    case MLXSHIM_OP_ROUTE: return {run_route};
    case MLXSHIM_OP_COMBINE: return {run_combine};
    case MLXSHIM_OP_CAST: return {run_cast};
    case MLXSHIM_OP_LOAD_TOKENS: return {run_load_tokens};
    case MLXSHIM_OP_STORE_TOKENS: return {run_store_tokens};
    case MLXSHIM_OP_PENALIZE: return {run_penalize};
    case MLXSHIM_OP_BIAS: return {run_bias};
    case MLXSHIM_OP_ARGMAX: return {run_argmax};
    case MLXSHIM_OP_SAMPLE: return {run_sample};
  }
  fail(MLXSHIM_ERR_UNSUPPORTED, "this library has no opcode ", opcode);
}

}  // namespace mlxcel
