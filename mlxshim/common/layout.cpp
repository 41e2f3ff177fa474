#include "layout.h"

#include <cstddef>

#include "mlxshim.h"

namespace mlxcel {

std::span<const int64_t> layout_table() {
#define SIZE(block) int64_t(sizeof(block))
#define AT(block, field) int64_t(offsetof(block, field))
  static const int64_t table[] = {
      SIZE(mlxshim_context_params),
      AT(mlxshim_context_params, size),
      AT(mlxshim_context_params, device),
      AT(mlxshim_context_params, device_index),
      AT(mlxshim_context_params, threads),
      AT(mlxshim_context_params, memory_limit),
      SIZE(mlxshim_device_info),
      AT(mlxshim_device_info, size),
      AT(mlxshim_device_info, device),
      AT(mlxshim_device_info, device_index),
      AT(mlxshim_device_info, total_memory),
      AT(mlxshim_device_info, free_memory),
      AT(mlxshim_device_info, compute_major),
      AT(mlxshim_device_info, compute_minor),
      AT(mlxshim_device_info, activation_dtype),
      SIZE(mlxshim_memory_info),
      AT(mlxshim_memory_info, size),
      AT(mlxshim_memory_info, active),
      AT(mlxshim_memory_info, peak),
      AT(mlxshim_memory_info, cached),
      AT(mlxshim_memory_info, host),
      SIZE(mlxshim_part),
      AT(mlxshim_part, size),
      AT(mlxshim_part, file),
      AT(mlxshim_part, offset),
      AT(mlxshim_part, bytes),
      AT(mlxshim_part, data),
      AT(mlxshim_part, blocks),
      AT(mlxshim_part, field),
      AT(mlxshim_part, head_rows),
      AT(mlxshim_part, row_bytes),
      SIZE(mlxshim_weight),
      AT(mlxshim_weight, size),
      AT(mlxshim_weight, name),
      AT(mlxshim_weight, name_length),
      AT(mlxshim_weight, dtype),
      AT(mlxshim_weight, resident_dtype),
      AT(mlxshim_weight, ndim),
      AT(mlxshim_weight, dims),
      AT(mlxshim_weight, part_count),
      AT(mlxshim_weight, parts),
      SIZE(mlxshim_weight_info),
      AT(mlxshim_weight_info, size),
      AT(mlxshim_weight_info, dtype),
      AT(mlxshim_weight_info, ndim),
      AT(mlxshim_weight_info, bytes),
      SIZE(mlxshim_layer),
      AT(mlxshim_layer, size),
      AT(mlxshim_layer, kv_heads),
      AT(mlxshim_layer, key_dim),
      AT(mlxshim_layer, value_dim),
      AT(mlxshim_layer, window),
      SIZE(mlxshim_state_params),
      AT(mlxshim_state_params, size),
      AT(mlxshim_state_params, dtype),
      AT(mlxshim_state_params, max_sequences),
      AT(mlxshim_state_params, max_tokens),
      AT(mlxshim_state_params, layer_count),
      AT(mlxshim_state_params, layers),
      SIZE(mlxshim_state_info),
      AT(mlxshim_state_info, size),
      AT(mlxshim_state_info, bytes),
      SIZE(mlxshim_run),
      AT(mlxshim_run, size),
      AT(mlxshim_run, tokens),
      AT(mlxshim_run, rows),
      AT(mlxshim_run, sequences),
      AT(mlxshim_run, input_count),
      AT(mlxshim_run, inputs),
      AT(mlxshim_run, output_count),
      AT(mlxshim_run, outputs),
  };
#undef SIZE
#undef AT
  return table;
}

}  // namespace mlxcel
