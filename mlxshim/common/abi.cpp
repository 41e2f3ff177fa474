// The exported functions: argument checks that every library shares, around the classes of backend.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend.h"
#include "call.h"
#include "dtype.h"
#include "layout.h"
#include "quant.h"
#include "status.h"

using namespace mlxcel;

namespace {

template <class T>
T& checked(T* pointer, const char* what) {
  require(pointer != nullptr, what, " is null");
  return *pointer;
}

// A parameter block, whose own size says which version of it the caller means.
template <class T>
T& block(T* pointer, const char* what) {
  T& it = checked(pointer, what);
  require(it.size == int64_t(sizeof(T)), what, " has size ", it.size, " where this library has ", sizeof(T));
  return it;
}

void write_text(const std::string& value, char* text, int64_t capacity, int64_t* length) {
  require(capacity >= 0 && (capacity == 0 || text != nullptr), "no room for the text");
  checked(length, "length") = int64_t(value.size());
  if (capacity > 0) std::memcpy(text, value.data(), size_t(std::min(capacity, int64_t(value.size()))));
}

std::string read_text(const char* text, int64_t length, const char* what) {
  require(length >= 0 && length < (int64_t(1) << 20), what, " has a length of ", length);
  require(length == 0 || text != nullptr, what, " is null");
  return std::string(text ? text : "", size_t(length));
}

void check_count(int64_t n, int64_t low, int64_t high, const char* what) {
  require(n >= low && n <= high, what, " is ", n, ", not from ", low, " to ", high);
}

constexpr int64_t kMaxDim = std::numeric_limits<int32_t>::max();

Type read_type(const mlxshim_weight& weight) {
  Type type;
  require(dtype_size(weight.dtype) != 0, "dtype is ", weight.dtype);
  require(dtype_size(weight.resident_dtype) != 0, "resident_dtype is ", weight.resident_dtype);
  require(weight.dtype == weight.resident_dtype || (is_float(weight.dtype) && is_float(weight.resident_dtype)),
          "a weight of ", dtype_name(weight.dtype), " cannot be kept as ", dtype_name(weight.resident_dtype));
  type.dtype = weight.resident_dtype;
  check_count(weight.ndim, 1, MLXSHIM_MAX_DIMS, "ndim");
  checked(weight.dims, "dims");
  type.ndim = int(weight.ndim);
  int64_t elements = 1;
  for (int i = 0; i < type.ndim; i++) {
    int64_t dim = weight.dims[i];
    check_count(dim, 1, kMaxDim, "a dimension");
    require(elements <= (int64_t(1) << 40) / dim, "the weight is too large");
    elements *= dim;
    type.dims[size_t(i)] = dim;
  }
  return type;
}

FileLayout read_layout(const mlxshim_part& given, int64_t dtype) {
  FileLayout layout{given.blocks, given.field, given.head_rows, given.row_bytes};
  check_count(layout.blocks, MLXSHIM_BLOCKS_NONE, MLXSHIM_BLOCKS_Q8_0, "blocks");
  check_count(layout.field, MLXSHIM_FIELD_ELEMENTS, layout.blocks ? MLXSHIM_FIELD_BIASES : 0, "field");
  if (layout.blocks != MLXSHIM_BLOCKS_NONE) {
    const bool elements = layout.field == MLXSHIM_FIELD_ELEMENTS;
    require(elements ? dtype == MLXSHIM_DTYPE_U32 : dtype == MLXSHIM_DTYPE_F16 || dtype == MLXSHIM_DTYPE_F32,
            "no field ", layout.field, " of blocks makes a weight of dtype ", dtype);
  }
  require(given.bytes % layout.unit(dtype) == 0, "a part has ", given.bytes, " bytes, no whole number of blocks");
  check_count(layout.head_rows, 0, kMaxDim, "head_rows");
  require(layout.head_rows % 2 == 0, "heads of ", layout.head_rows, " rows have no halves");
  if (layout.head_rows > 0) {
    check_count(layout.row_bytes, 1, kMaxDim, "row_bytes");
    require(layout.row_bytes % layout.file_unit() == 0, "a row has ", layout.row_bytes, " bytes, no whole blocks");
    require(layout.file_bytes(given.bytes, dtype) % (layout.row_bytes * layout.head_rows) == 0,
            "a part that is interleaved has no whole number of heads");
  }
  return layout;
}

std::vector<WeightSource::Part> read_parts(Call& call, const mlxshim_weight& weight, int64_t bytes) {
  check_count(weight.part_count, 1, int64_t(1) << 20, "part_count");
  checked(weight.parts, "parts");
  std::vector<WeightSource::Part> parts;
  int64_t left = bytes;
  for (int64_t i = 0; i < weight.part_count; i++) {
    const mlxshim_part& given = block(&weight.parts[i], "a part");
    check_count(given.bytes, 0, left, "a part's bytes");
    left -= given.bytes;
    WeightSource::Part part{nullptr, given.offset, given.bytes, given.data, false, read_layout(given, weight.dtype)};
    require(part.layout.plain() || given.file > 0, "a part that is in blocks or interleaved is in no file");
    if (given.file == MLXSHIM_FILE_RANDOM) {
      require(weight.part_count == 1, "a part that is made up is not the weight's only one");
      part.made_up = true;
    } else if (given.file != 0) {
      part.file = call.get<File>(given.file);
      require(given.offset >= 0 && given.offset <= part.file->size(), "a part begins at ", given.offset, " of ",
              part.file->path(), ", which has ", part.file->size(), " bytes");
      const int64_t need = part.layout.file_bytes(given.bytes, weight.dtype);
      if (need > part.file->size() - given.offset)
        fail(MLXSHIM_ERR_IO, part.file->path(), " has ", part.file->size(), " bytes, the weight needs ", need, " from ",
             given.offset);
    } else {
      require(given.bytes == 0 || given.data != nullptr, "a part has neither file nor data");
    }
    parts.push_back(std::move(part));
  }
  require(left == 0, "the parts have ", bytes - left, " bytes, the weight ", bytes);
  return parts;
}

int64_t bytes_of(const Type& type) { return type.elements() * dtype_size(type.dtype); }

}  // namespace

int32_t mlxshim_abi_version(int64_t* version) noexcept {
  return guarded([&](Call&) { checked(version, "version") = MLXSHIM_ABI_VERSION; });
}

int32_t mlxshim_layout(int64_t* table, int64_t capacity, int64_t* count) noexcept {
  return guarded([&](Call&) {
    auto all = layout_table();
    require(capacity >= 0 && (capacity == 0 || table != nullptr), "no room for the table");
    checked(count, "count") = int64_t(all.size());
    std::copy_n(all.begin(), size_t(std::min(capacity, int64_t(all.size()))), table);
  });
}

int32_t mlxshim_library_info(char* text, int64_t capacity, int64_t* length) noexcept {
  return guarded([&](Call&) {
    LibraryInfo info = library_info();
    write_text(info.json, text, capacity, length);
    if (!info.mismatch.empty()) fail(MLXSHIM_ERR_VERSION, info.mismatch);
  });
}

int32_t mlxshim_last_error(int64_t context, char* text, int64_t capacity, int64_t* length) noexcept {
  try {
    // No Call: asking must not replace what it asks for, and any thread may ask.
    if (context != 0 && !handles().find(context, Kind::kContext)) return MLXSHIM_ERR_ARGUMENT;
    write_text(recall_error(context), text, capacity, length);
    return MLXSHIM_OK;
  } catch (const std::bad_alloc&) {
    return MLXSHIM_ERR_MEMORY;
  } catch (...) {
    return MLXSHIM_ERR_ARGUMENT;
  }
}

int32_t mlxshim_context_create(const mlxshim_context_params* params, int64_t* context) noexcept {
  return guarded([&](Call&) {
    const auto& p = block(params, "params");
    checked(context, "context");
    require(p.device == MLXSHIM_DEVICE_CPU || p.device == MLXSHIM_DEVICE_CUDA, "device is ", p.device);
    check_count(p.device_index, 0, 1023, "device_index");
    check_count(p.threads, 0, 65536, "threads");
    check_count(p.memory_limit, 0, int64_t(1) << 50, "memory_limit");
    if (LibraryInfo info = library_info(); !info.mismatch.empty()) fail(MLXSHIM_ERR_VERSION, info.mismatch);
    *context = handles().add(open_context(p), 0);
  });
}

int32_t mlxshim_context_destroy(int64_t context) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<Context>(context);
    auto all = handles().take_context(context);
    try {
      it->synchronize();  // nothing may still write where we are about to free
    } catch (...) {       // a failure of work whose results nobody wants any more
    }
    for (auto& object : all) object.reset();
    it.reset();
    forget_errors(context);
  });
}

int32_t mlxshim_device_facts(int64_t context, mlxshim_device_info* info) noexcept {
  return guarded([&](Call& call) { call.get<Context>(context)->device_facts(block(info, "info")); });
}

int32_t mlxshim_memory(int64_t context, mlxshim_memory_info* info) noexcept {
  return guarded([&](Call& call) { call.get<Context>(context)->memory(block(info, "info")); });
}

int32_t mlxshim_memory_reset_peak(int64_t context) noexcept {
  return guarded([&](Call& call) { call.get<Context>(context)->reset_peak(); });
}

int32_t mlxshim_memory_trim(int64_t context) noexcept {
  return guarded([&](Call& call) { call.get<Context>(context)->trim(); });
}

int32_t mlxshim_file_open(int64_t context, const char* path, int64_t path_length, int64_t* file) noexcept {
  return guarded([&](Call& call) {
    call.get<Context>(context);
    checked(file, "file");
    std::string name = read_text(path, path_length, "path");
    require(!name.empty() && name.find('\0') == std::string::npos, "path is empty or holds a zero byte");
    *file = handles().add(std::make_shared<File>(std::move(name)), context);
  });
}

int32_t mlxshim_file_close(int64_t file) noexcept {
  return guarded([&](Call& call) { call.take<File>(file); });
}

int32_t mlxshim_weights_create(int64_t context, int64_t* weights) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<Context>(context);
    checked(weights, "weights");
    *weights = handles().add(it->make_weights(), context);
  });
}

int32_t mlxshim_weights_destroy(int64_t weights) noexcept {
  return guarded([&](Call& call) { call.take<Weights>(weights); });
}

int32_t mlxshim_weights_add(int64_t weights, const mlxshim_weight* weight, int64_t* index) noexcept {
  return guarded([&](Call& call) {
    auto set = call.get<Weights>(weights);
    const auto& given = block(weight, "weight");
    checked(index, "index");
    WeightFacts facts{read_text(given.name, given.name_length, "name"), read_type(given), given.dtype};
    WeightSource source(read_parts(call, given, facts.type.elements() * dtype_size(given.dtype)), given.dtype);
    set->add(std::move(facts), source);
    *index = int64_t(set->facts().size()) - 1;
  });
}

int32_t mlxshim_weights_pack(int64_t weights, int64_t weight, int64_t scales, int64_t biases, int64_t mode, int64_t bits,
                             int64_t group) noexcept {
  return guarded([&](Call& call) {
    auto set = call.get<Weights>(weights);
    const int64_t last = int64_t(set->facts().size()) - 1;
    check_count(weight, 0, last, "weight");
    check_count(scales, -1, last, "scales");
    check_count(biases, -1, last, "biases");
    auto type = [&](int64_t index) { return index < 0 ? nullptr : &set->types()[size_t(index)]; };
    const QuantFormat format{mode, bits, group};
    require(type(weight)->ndim == 2 || type(weight)->ndim == 3, "w is ", type(weight)->print(), ", no matrix");
    const std::string fault = matrix_fault(format, *type(weight), type(scales), type(biases));
    require(fault.empty(), fault);
    set->pack({weight, scales, biases, format});
  });
}

int32_t mlxshim_weights_count(int64_t weights, int64_t* count) noexcept {
  return guarded([&](Call& call) {
    auto set = call.get<Weights>(weights);
    checked(count, "count") = int64_t(set->facts().size());
  });
}

int32_t mlxshim_weights_info(int64_t weights, int64_t index, mlxshim_weight_info* info, int64_t* dims, char* name,
                             int64_t capacity, int64_t* length) noexcept {
  return guarded([&](Call& call) {
    auto set = call.get<Weights>(weights);
    auto& out = block(info, "info");
    check_count(index, 0, int64_t(set->facts().size()) - 1, "index");
    const WeightFacts& facts = set->facts()[size_t(index)];
    if (name || length) write_text(facts.name, name, name ? capacity : 0, length);
    out = {int64_t(sizeof out), facts.type.dtype, facts.type.ndim, bytes_of(facts.type)};
    if (dims) std::copy_n(facts.type.dims.begin(), size_t(facts.type.ndim), dims);
  });
}

int32_t mlxshim_state_create(int64_t context, const mlxshim_state_params* params, int64_t* state) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<Context>(context);
    const auto& p = block(params, "params");
    checked(state, "state");
    require(is_float(p.dtype), "keys and values cannot be of dtype ", p.dtype);
    check_count(p.max_sequences, 1, 65536, "max_sequences");
    check_count(p.max_tokens, 1, int64_t(1) << 30, "max_tokens");
    check_count(p.layer_count, 0, 4096, "layer_count");
    StateShape shape{p.dtype, p.max_sequences, p.max_tokens, {}};
    if (p.layer_count > 0) checked(p.layers, "layers");
    for (int64_t i = 0; i < p.layer_count; i++) {
      const auto& layer = block(&p.layers[i], "a layer");
      check_count(layer.kv_heads, 1, 65536, "kv_heads");
      check_count(layer.key_dim, 1, 65536, "key_dim");
      check_count(layer.value_dim, 1, 65536, "value_dim");
      check_count(layer.window, 0, kMaxDim, "window");
      require(layer.kv_heads * std::max(layer.key_dim, layer.value_dim) <= (int64_t(1) << 40) / p.max_tokens,
              "a layer's keys or values are too large");
      shape.layers.push_back({layer.kv_heads, layer.key_dim, layer.value_dim, layer.window});
    }
    *state = handles().add(it->make_state(std::move(shape)), context);
  });
}

int32_t mlxshim_state_destroy(int64_t state) noexcept {
  return guarded([&](Call& call) { call.take<State>(state); });
}

int32_t mlxshim_state_facts(int64_t state, mlxshim_state_info* info) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<State>(state);
    block(info, "info").bytes = it->bytes();
  });
}

int32_t mlxshim_state_reset(int64_t state, int64_t slot) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<State>(state);
    check_count(slot, 0, it->shape.max_sequences - 1, "slot");
    for (size_t l = 0; l < it->shape.layers.size(); l++) it->ledger.length(slot, l) = 0;
    it->ledger.token_bound(slot) = 0;
    it->reset(slot);
  });
}

int32_t mlxshim_state_copy(int64_t state, int64_t from, int64_t to, int64_t tokens) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<State>(state);
    check_count(from, 0, it->shape.max_sequences - 1, "from");
    check_count(to, 0, it->shape.max_sequences - 1, "to");
    require(from != to, "a slot is copied to itself");
    for (size_t l = 0; l < it->shape.layers.size(); l++) {
      check_count(tokens, 0, it->ledger.length(from, l), "tokens");
      it->ledger.length(to, l) = 0;
    }
    it->ledger.token_bound(to) = 0;
    it->copy(from, to, tokens);
    for (size_t l = 0; l < it->shape.layers.size(); l++) it->ledger.length(to, l) = tokens;
  });
}

int32_t mlxshim_program_load(int64_t context, int64_t weights, int64_t state, const int64_t* words, int64_t count,
                             int64_t* program, int64_t* failed_op) noexcept {
  return guarded(
      [&](Call& call) {
        auto it = call.get<Context>(context);
        auto set = call.get<Weights>(weights);
        auto kept = state ? call.get<State>(state) : nullptr;
        require(set->context == context && (!kept || kept->context == context), "weights or state of another context");
        check_count(count, 1, kMaxDim, "count");
        checked(words, "words");
        checked(program, "program");
        checked(failed_op, "failed_op");
        Program decoded = decode_program({words, size_t(count)});
        check_program(decoded, set->types(), kept ? &kept->shape : nullptr);
        *program = handles().add(it->make_program(std::move(decoded), std::move(set), std::move(kept)), context);
      },
      failed_op);
}

int32_t mlxshim_program_destroy(int64_t program) noexcept {
  return guarded([&](Call& call) { call.take<LoadedProgram>(program); });
}

int32_t mlxshim_program_describe(int64_t program, char* text, int64_t capacity, int64_t* length) noexcept {
  return guarded([&](Call& call) { write_text(call.get<LoadedProgram>(program)->describe(), text, capacity, length); });
}

int32_t mlxshim_program_run(int64_t program, const mlxshim_run* run, int64_t* failed_op) noexcept {
  return guarded(
      [&](Call& call) {
        auto it = call.get<LoadedProgram>(program);
        const auto& given = block(run, "run");
        checked(failed_op, "failed_op");
        const Program& facts = it->program;
        require(given.input_count == facts.input_count, "the run has ", given.input_count, " inputs, the program ",
                facts.input_count);
        require(given.output_count == int64_t(facts.outputs.size()), "the run has room for ", given.output_count,
                " outputs, the program has ", facts.outputs.size());
        RunArguments arguments{{given.tokens, given.rows, given.sequences}, {}};
        if (given.input_count > 0) checked(given.inputs, "inputs");
        if (given.output_count > 0) checked(given.outputs, "outputs");
        for (int64_t i = 0; i < given.input_count; i++) {
          bool empty = facts.types[size_t(i)].axis == MLXSHIM_AXIS_ROWS && given.rows == 0;
          require(empty || given.inputs[i] != nullptr, "input ", i, " is null");
          arguments.inputs.push_back(given.inputs[i]);
        }
        State* state = it->state.get();
        check_run(facts, state ? &state->shape : nullptr, state ? &state->ledger : nullptr, arguments);
        if (state) {
          arguments.overwrites = state->ledger.overwrites(facts, arguments);
          state->ledger.begin(facts, arguments);
        }
        auto values = it->run(arguments);
        if (state) state->ledger.commit(facts, arguments);
        for (size_t i = 0; i < values.size(); i++) given.outputs[i] = handles().add(std::move(values[i]), it->context);
      },
      failed_op);
}

int32_t mlxshim_value_read(int64_t value, void* data, int64_t bytes) noexcept {
  return guarded([&](Call& call) {
    auto it = call.get<Value>(value);
    require(bytes == it->bytes, "the value has ", it->bytes, " bytes, the reader has room for ", bytes);
    require(bytes == 0 || data != nullptr, "data is null");
    it->read(data);
  });
}

int32_t mlxshim_value_free(int64_t value) noexcept {
  return guarded([&](Call& call) { call.take<Value>(value); });
}

int32_t mlxshim_synchronize(int64_t context) noexcept {
  return guarded([&](Call& call) { call.get<Context>(context)->synchronize(); });
}
