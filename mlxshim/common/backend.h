// What a library has to implement. The C ABI itself (abi.cpp) checks arguments, keeps handles and calls these; their
// methods may throw and are called by the context's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "blocks.h"
#include "file.h"
#include "handles.h"
#include "ledger.h"
#include "program.h"
#include "quant.h"

namespace mlxcel {

// The bytes of a weight: parts in files and in memory that follow each other.
class WeightSource {
 public:
  struct Part {
    std::shared_ptr<File> file;  // null: in memory
    int64_t offset = 0;
    int64_t bytes = 0;
    const void* data = nullptr;
    bool made_up = false;
    FileLayout layout;
  };

  // dtype is that of the bytes.
  WeightSource(std::vector<Part> parts, int64_t dtype) : parts_(std::move(parts)), dtype_(dtype) {}

  // Copies n bytes from position `at` of the whole on, whole elements. Throws MLXSHIM_ERR_IO. Whoever reads elements,
  // scales and biases of the same blocks one after the other gives the same buffer.
  void read(void* to, int64_t at, int64_t n, FileBuffer& buffer) const;
  void read(void* to, int64_t at, int64_t n) const;
  // The same by several threads of its own where that is worth it.
  void read_fast(void* to, int64_t at, int64_t n) const;

  // Whether nothing but the call that handed it in keeps some of the bytes.
  bool borrowed() const;

  // Whether the bytes are made up: a library may make up others, as the ABI says.
  bool made_up() const { return parts_.size() == 1 && parts_[0].made_up; }
  uint32_t seed() const { return uint32_t(parts_[0].offset); }

 private:
  std::vector<Part> parts_;
  int64_t dtype_;
};

struct WeightFacts {
  std::string name;
  Type type;             // as it is kept
  int64_t stored_dtype;  // of the source's bytes
};

// Which weights a matrix is made of (-1: none), and how.
struct MatrixParts {
  int64_t weight, scales, biases;
  QuantFormat format;
  auto operator<=>(const MatrixParts&) const = default;
};

class Weights : public Object {
 public:
  static constexpr Kind kKind = Kind::kWeights;
  Weights() : Object(kKind) {}

  void add(WeightFacts facts, const WeightSource& source) {
    load(facts, source);
    facts_.push_back(std::move(facts));
    types_.push_back(facts_.back().type);
  }
  // Prepares a matrix that programs will use; it has no faults.
  virtual void pack(const MatrixParts&) {}

  const std::vector<WeightFacts>& facts() const { return facts_; }
  const std::vector<Type>& types() const { return types_; }

 protected:
  virtual void load(const WeightFacts& facts, const WeightSource& source) = 0;

 private:
  std::vector<WeightFacts> facts_;
  std::vector<Type> types_;
};

class State : public Object {
 public:
  static constexpr Kind kKind = Kind::kState;
  explicit State(StateShape shape) : Object(kKind), shape(std::move(shape)), ledger(this->shape) {}

  virtual int64_t bytes() const = 0;
  // Forgets keys, values and last token of a slot. The ledger is kept by the caller.
  virtual void reset(int64_t slot) = 0;
  virtual void copy(int64_t from, int64_t to, int64_t tokens) = 0;

  const StateShape shape;
  Ledger ledger;
};

class Value : public Object {
 public:
  static constexpr Kind kKind = Kind::kValue;
  explicit Value(int64_t bytes) : Object(kKind), bytes(bytes) {}

  // Waits and copies all bytes.
  virtual void read(void* to) = 0;

  const int64_t bytes;
};

class LoadedProgram : public Object {
 public:
  static constexpr Kind kKind = Kind::kProgram;
  LoadedProgram(Program program, std::shared_ptr<State> state)
      : Object(kKind), program(std::move(program)), state(std::move(state)) {}

  // How it is run, a line a stage: unless a library knows better, an op is a stage.
  virtual std::string describe() const;
  // Enqueues a run whose arguments are checked. The ledger is kept by the caller.
  virtual std::vector<std::shared_ptr<Value>> run(const RunArguments& run) = 0;

  const Program program;
  const std::shared_ptr<State> state;  // null: none
};

class Context : public Object {
 public:
  static constexpr Kind kKind = Kind::kContext;
  Context() : Object(kKind), thread_(std::this_thread::get_id()) {}

  std::thread::id thread() const { return thread_; }

  // A call on the context or on what was made from it begins, and ends.
  virtual void begin() {}
  virtual void end() noexcept {}
  // What is wrong with the device for good, in a word; empty where it works.
  virtual std::string fault() { return {}; }

  virtual void device_facts(mlxshim_device_info& info) = 0;
  virtual void memory(mlxshim_memory_info& info) = 0;
  virtual void reset_peak() = 0;
  virtual void trim() = 0;
  virtual void synchronize() = 0;
  virtual std::shared_ptr<Weights> make_weights() = 0;
  virtual std::shared_ptr<State> make_state(StateShape shape) = 0;
  // The program is checked against weights and state (null: none).
  virtual std::shared_ptr<LoadedProgram> make_program(Program program, std::shared_ptr<Weights> weights,
                                                      std::shared_ptr<State> state) = 0;

  // Why nothing works any more since a call failed with MLXSHIM_ERR_DEVICE; empty before that. Every later call fails with
  // it, and nothing that was made from the context is destroyed: that would use the device.
  std::string lost;

 private:
  std::thread::id thread_;
};

// Opens a device for the calling thread.
std::shared_ptr<Context> open_context(const mlxshim_context_params& params);

struct LibraryInfo {
  std::string json;
  std::string mismatch;  // a sentence where the library beside us is not the one that we were built for
};
LibraryInfo library_info();

}  // namespace mlxcel
