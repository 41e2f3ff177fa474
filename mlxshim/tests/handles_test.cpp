// Every function with null, negative, huge, stale and wrong-kind arguments: a status, never a crash.
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "abi.h"

using namespace test;

namespace {

// One of each kind of object.
struct All {
  Session session;
  int64_t state, program, value, file;

  All() {
    state = session.make_state(2, 10, {layer(1, 4, 4)});
    Builder b;
    auto x = b.input({F32, TOKENS, {1, 2}});
    b.output(b.op(MLXSHIM_OP_ADD, {x, x}, {}, {{F32, TOKENS, {1, 2}}}));
    program = session.load(b, state);
    value = run_once();
    std::string path = (std::filesystem::temp_directory_path() / "mlxshim-handles").string();
    std::ofstream(path) << "some bytes";
    file = 0;
    OK(mlxshim_file_open(session.context, path.data(), int64_t(path.size()), &file));
  }
  int64_t run_once() {
    float x[2] = {1, 2};
    std::vector<int64_t> out(1);
    OK(run_raw(program, {1, 0, 1}, {x}, out));
    return out[0];
  }
};

// The functions by the kind of handle that they take first.
using Function = std::function<int32_t(int64_t)>;

mlxshim_device_info device_info{sizeof device_info, 0, 0, 0, 0, 0, 0, 0};
mlxshim_memory_info memory_info{sizeof memory_info, 0, 0, 0, 0};
mlxshim_state_info state_info{sizeof state_info, 0};
mlxshim_weight_info weight_info{sizeof weight_info, 0, 0, 0};
int64_t number = 0, failed = 0;
char text_buffer[100];

std::vector<Function> context_functions() {
  return {
      [](int64_t h) { return mlxshim_context_destroy(h); },
      [](int64_t h) { return mlxshim_device_facts(h, &device_info); },
      [](int64_t h) { return mlxshim_memory(h, &memory_info); },
      [](int64_t h) { return mlxshim_memory_reset_peak(h); },
      [](int64_t h) { return mlxshim_memory_trim(h); },
      [](int64_t h) { return mlxshim_file_open(h, "/dev/null", 9, &number); },
      [](int64_t h) { return mlxshim_weights_create(h, &number); },
      [](int64_t h) {
        mlxshim_layer one = layer(1, 2, 2);
        mlxshim_state_params p{sizeof p, F32, 1, 1, 1, &one};
        return mlxshim_state_create(h, &p, &number);
      },
      [](int64_t h) {
        int64_t word = 1;
        return mlxshim_program_load(h, 1, 0, &word, 1, &number, &failed);
      },
      [](int64_t h) { return mlxshim_synchronize(h); },
  };
}

std::vector<Function> weights_functions() {
  return {
      [](int64_t h) { return mlxshim_weights_destroy(h); },
      [](int64_t h) {
        float data = 1;
        int64_t dim = 1;
        mlxshim_part part{sizeof part, 0, 0, 4, &data, 0, 0, 0, 0};
        mlxshim_weight w{sizeof w, "w", 1, F32, F32, 1, &dim, 1, &part};
        return mlxshim_weights_add(h, &w, &number);
      },
      [](int64_t h) { return mlxshim_weights_pack(h, 0, -1, -1, 0, 0, 0); },
      [](int64_t h) { return mlxshim_weights_count(h, &number); },
      [](int64_t h) { return mlxshim_weights_info(h, 0, &weight_info, nullptr, nullptr, 0, nullptr); },
  };
}

std::vector<Function> state_functions() {
  return {
      [](int64_t h) { return mlxshim_state_destroy(h); },
      [](int64_t h) { return mlxshim_state_facts(h, &state_info); },
      [](int64_t h) { return mlxshim_state_reset(h, 0); },
      [](int64_t h) { return mlxshim_state_copy(h, 0, 1, 0); },
  };
}

std::vector<Function> program_functions() {
  return {
      [](int64_t h) { return mlxshim_program_destroy(h); },
      [](int64_t h) { return mlxshim_program_describe(h, text_buffer, sizeof text_buffer, &number); },
      [](int64_t h) {
        static float x[2];
        static const void* inputs[] = {x};
        static int64_t outputs[1];
        mlxshim_run run{sizeof run, 1, 0, 1, 1, inputs, 1, outputs};
        return mlxshim_program_run(h, &run, &failed);
      },
  };
}

std::vector<Function> value_functions() {
  return {
      [](int64_t h) { return mlxshim_value_read(h, text_buffer, 8); },
      [](int64_t h) { return mlxshim_value_free(h); },
  };
}

std::vector<Function> file_functions() {
  return {[](int64_t h) { return mlxshim_file_close(h); }};
}

}  // namespace

TEST(wrong_handles) {
  All all;
  struct {
    std::vector<Function> functions;
    int64_t own;
  } kinds[] = {{context_functions(), all.session.context},
               {weights_functions(), all.session.weights},
               {state_functions(), all.state},
               {program_functions(), all.program},
               {value_functions(), all.value},
               {file_functions(), all.file}};
  for (auto& kind : kinds) {
    std::vector<int64_t> wrong{0, -1, INT64_MIN, INT64_MAX, 1 << 30};
    for (auto& other : kinds)
      if (other.own != kind.own) wrong.push_back(other.own);
    for (auto& function : kind.functions)
      for (int64_t handle : wrong) FAILS(MLXSHIM_ERR_ARGUMENT, function(handle));
  }
  // All of them are alive after that.
  auto data = read<float>(all.value, 2);
  CHECK(data == std::vector<float>({2, 4}));
}

TEST(stale_handles) {
  All all;
  OK(mlxshim_value_free(all.value));
  for (auto& f : value_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(all.value));
  OK(mlxshim_file_close(all.file));
  for (auto& f : file_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(all.file));
  // What a program needs stays while it lives.
  OK(mlxshim_weights_destroy(all.session.weights));
  OK(mlxshim_state_destroy(all.state));
  for (auto& f : weights_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(all.session.weights));
  for (auto& f : state_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(all.state));
  all.run_once();
  OK(mlxshim_program_destroy(all.program));
  for (auto& f : program_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(all.program));
  int64_t again = 0;
  OK(mlxshim_weights_create(all.session.context, &again));
  CHECK(again > all.value);  // numbers are not used twice
}

TEST(a_context_takes_all_with_it) {
  int64_t context, weights, state, program, value, file;
  {
    All all;
    context = all.session.context, weights = all.session.weights, state = all.state, program = all.program;
    value = all.value, file = all.file;
  }
  for (auto& f : context_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(context));
  for (auto& f : weights_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(weights));
  for (auto& f : state_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(state));
  for (auto& f : program_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(program));
  for (auto& f : value_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(value));
  for (auto& f : file_functions()) FAILS(MLXSHIM_ERR_ARGUMENT, f(file));
}

TEST(null_pointers) {
  All all;
  const int64_t c = all.session.context, w = all.session.weights;
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_abi_version(nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_layout(nullptr, 1, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_layout(nullptr, 0, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_layout(&number, -1, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_library_info(nullptr, 1, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_library_info(text_buffer, 100, nullptr));
  CHECK_EQUAL(mlxshim_last_error(0, nullptr, 5, &number), MLXSHIM_ERR_ARGUMENT);
  CHECK_EQUAL(mlxshim_last_error(0, text_buffer, 100, nullptr), MLXSHIM_ERR_ARGUMENT);
  CHECK_EQUAL(mlxshim_last_error(0, text_buffer, -100, &number), MLXSHIM_ERR_ARGUMENT);
  CHECK_EQUAL(mlxshim_last_error(-7, text_buffer, 100, &number), MLXSHIM_ERR_ARGUMENT);
  auto params = test_device();
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(nullptr, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(&params, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_device_facts(c, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_memory(c, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, nullptr, 5, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, "/x", 2, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, "/x", -2, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, "/x", INT64_MAX, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, "relative", 8, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_file_open(c, "", 0, &number));
  auto folder = std::filesystem::temp_directory_path(), missing = folder / "no such file";
  FAILS(MLXSHIM_ERR_IO, mlxshim_file_open(c, missing.string().data(), int64_t(missing.string().size()), &number));
  CHECK(last_error(c).find(missing.string()) != std::string::npos);
  FAILS(MLXSHIM_ERR_IO, mlxshim_file_open(c, folder.string().data(), int64_t(folder.string().size()), &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_create(c, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_add(w, nullptr, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_count(w, nullptr));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_weights_info(w, 0, &weight_info, nullptr, nullptr, 0, nullptr));  // there is none
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_create(c, nullptr, &number));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_facts(all.state, nullptr));
  for (int64_t slot : {int64_t(-1), int64_t(2), INT64_MAX, INT64_MIN})
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_state_reset(all.state, slot));
  int64_t word = MLXSHIM_PROGRAM_MAGIC;
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_load(c, w, 0, nullptr, 1, &number, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_load(c, w, 0, &word, -1, &number, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_load(c, w, 0, &word, 0, &number, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_load(c, w, 0, &word, 1, nullptr, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_load(c, w, 0, &word, 1, &number, nullptr));
  FAILS(MLXSHIM_ERR_PROGRAM, mlxshim_program_load(c, w, 0, &word, 1, &number, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_run(all.program, nullptr, &failed));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_value_read(all.value, nullptr, 8));
  for (int64_t bytes : {int64_t(-1), int64_t(0), int64_t(7), int64_t(9), INT64_MAX})
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_value_read(all.value, text_buffer, bytes));
}

TEST(wrong_blocks) {
  All all;
  const int64_t c = all.session.context;
  for (int64_t size : {int64_t(0), int64_t(-1), int64_t(8), INT64_MAX}) {
    auto params = test_device();
    params.size = size;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(&params, &number));
    mlxshim_device_info device = device_info;
    device.size = size;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_device_facts(c, &device));
    mlxshim_memory_info memory = memory_info;
    memory.size = size;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_memory(c, &memory));
    mlxshim_run run{size, 1, 0, 1, 1, nullptr, 1, nullptr};
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_run(all.program, &run, &failed));
  }
  for (int64_t value : {int64_t(-1), int64_t(0), INT64_MAX, INT64_MIN}) {
    auto params = test_device();
    params.device = value;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(&params, &number));
    if (value == 0) continue;
    params = test_device();
    params.device_index = value;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(&params, &number));
    params = test_device();
    params.threads = value;
    FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_context_create(&params, &number));
  }
  mlxshim_layer good = layer(1, 2, 2);
  auto state = [&](int64_t dtype, int64_t sequences, int64_t tokens, int64_t layers, const mlxshim_layer* l) {
    mlxshim_state_params p{sizeof p, dtype, sequences, tokens, layers, l};
    return mlxshim_state_create(c, &p, &number);
  };
  FAILS(MLXSHIM_ERR_ARGUMENT, state(I32, 1, 1, 1, &good));
  FAILS(MLXSHIM_ERR_ARGUMENT, state(99, 1, 1, 1, &good));
  FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, 1, 1, 1, nullptr));
  for (int64_t n : {int64_t(-1), INT64_MAX, INT64_MIN}) {
    FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, n, 1, 1, &good));
    FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, 1, n, 1, &good));
    FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, 1, 1, n, &good));
    for (mlxshim_layer bad : {layer(n, 2, 2), layer(1, n, 2), layer(1, 2, n), layer(1, 2, 2, n)})
      FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, 1, 1, 1, &bad));
  }
  mlxshim_layer huge = layer(65536, 65536, 65536);
  FAILS(MLXSHIM_ERR_ARGUMENT, state(F32, 1, int64_t(1) << 30, 1, &huge));
}

TEST(wrong_runs) {
  All all;
  float x[2] = {1, 2};
  const void* inputs[] = {x};
  const void* none[] = {nullptr};
  int64_t outputs[1] = {0};
  const mlxshim_run good{sizeof good, 1, 0, 1, 1, inputs, 1, outputs};
  auto attempt = [&](auto change) {
    mlxshim_run run = good;
    change(run);
    return mlxshim_program_run(all.program, &run, &failed);
  };
  OK(attempt([](mlxshim_run&) {}));
  for (int64_t n : {int64_t(-1), int64_t(2), INT64_MAX, INT64_MIN}) {
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.tokens = n; }));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.rows = n; }));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.sequences = n; }));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.input_count = n; }));
    FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.output_count = n; }));
  }
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.tokens = 0; }));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.inputs = nullptr; }));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.outputs = nullptr; }));
  FAILS(MLXSHIM_ERR_ARGUMENT, attempt([&](mlxshim_run& r) { r.inputs = none; }));
  FAILS(MLXSHIM_ERR_ARGUMENT, mlxshim_program_run(all.program, &good, nullptr));
}

TEST(other_threads) {
  All all;
  int32_t status = 0;
  std::thread([&] { status = mlxshim_synchronize(all.session.context); }).join();
  CHECK_EQUAL(status, MLXSHIM_ERR_ARGUMENT);
  CHECK(last_error(all.session.context).find("thread") != std::string::npos);
  std::thread([&] { status = mlxshim_value_free(all.value); }).join();
  CHECK_EQUAL(status, MLXSHIM_ERR_ARGUMENT);
  CHECK(read<float>(all.value, 2) == std::vector<float>({2, 4}));
  // A context of its own works on any thread, beside ours.
  std::thread([] {
    All own;
    CHECK(read<float>(own.value, 2) == std::vector<float>({2, 4}));
  }).join();
}

TEST(facts) {
  int64_t version = 0, count = 0, length = 0;
  OK(mlxshim_abi_version(&version));
  CHECK_EQUAL(version, MLXSHIM_ABI_VERSION);
  OK(mlxshim_layout(nullptr, 0, &count));
  std::vector<int64_t> table(static_cast<size_t>(count));
  OK(mlxshim_layout(table.data(), count, &count));
  CHECK_EQUAL(table[0], int64_t(sizeof(mlxshim_context_params)));
  CHECK_EQUAL(table.back(), int64_t(offsetof(mlxshim_run, outputs)));
  OK(mlxshim_library_info(nullptr, 0, &length));
  std::string info(size_t(length), ' ');
  OK(mlxshim_library_info(info.data(), length, &length));
  for (const char* key : {"\"backend\"", "\"version\"", "\"built_for\"", "\"loaded\"", "\"devices\""})
    CHECK(info.find(key) != std::string::npos);
  // A text is cut where there is no room, and its whole length told.
  char small[4] = "...";
  OK(mlxshim_library_info(small, 3, &length));
  CHECK(std::string(small) == info.substr(0, 3));

  Session session;
  OK(mlxshim_device_facts(session.context, &device_info));
  CHECK_EQUAL(device_info.device, on_gpu() ? MLXSHIM_DEVICE_CUDA : MLXSHIM_DEVICE_CPU);
  CHECK_EQUAL(device_info.activation_dtype, on_gpu() ? MLXSHIM_DTYPE_BF16 : MLXSHIM_DTYPE_F32);
  OK(mlxshim_memory(session.context, &memory_info));
  int64_t before = memory_info.active;
  session.add(F32, {1000, 1000}, std::vector<float>(1000000));
  OK(mlxshim_memory(session.context, &memory_info));
  CHECK(memory_info.active >= before + 4000000);
  CHECK(memory_info.peak >= memory_info.active);
  OK(mlxshim_weights_destroy(session.weights));
  OK(mlxshim_memory_trim(session.context));
  OK(mlxshim_memory_reset_peak(session.context));
  OK(mlxshim_memory(session.context, &memory_info));
  CHECK(memory_info.active < before + 4000000);
  CHECK_EQUAL(memory_info.cached, 0);
  OK(mlxshim_synchronize(session.context));
}
