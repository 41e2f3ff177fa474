// The frame of every exported function: no exception leaves it, and a failure leaves its sentence behind.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "handles.h"
#include "status.h"

namespace mlxcel {

// Keeps the sentence of a failure for this thread and, unless it is 0, for a context. Never throws.
void remember_error(int64_t context, const char* sentence) noexcept;
// The sentence last kept for a context (0: for this thread), or none.
std::string recall_error(int64_t context);
// Drops what is kept for a context.
void forget_errors(int64_t context) noexcept;

// The code for a foreign exception with this text, told by what the text says.
int32_t classify(const char* what) noexcept;

class Context;

// One call of an exported function: finds objects and knows on which context a failure is to be remembered.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  // The object of a handle. Throws where there is none of this type.
  template <class T>
  std::shared_ptr<T> get(int64_t handle) {
    auto object = handles().find(handle, T::kKind);
    if (!object) unknown(handle, T::kKind);
    enter(object->context);
    return std::static_pointer_cast<T>(object);
  }

  // The same, and takes it out of the table.
  template <class T>
  std::shared_ptr<T> take(int64_t handle) {
    get<T>(handle);
    return std::static_pointer_cast<T>(handles().take(handle, T::kKind));
  }

  // Remembers the sentence of a failure and returns its code, or MLXSHIM_ERR_DEVICE where the context's device is lost.
  int32_t failed(int32_t code, const char* sentence) noexcept;

 private:
  [[noreturn]] void unknown(int64_t handle, Kind kind);
  // Notes the context, and checks that this is its thread and that its device is not lost.
  void enter(int64_t context);

  int64_t context_ = 0;
  std::shared_ptr<Context> entered_;
};

// Runs body(Call&) and turns whatever it throws into a status. A Status's op goes to *failed_op where that is given.
template <class Body>
int32_t guarded(Body&& body, int64_t* failed_op = nullptr) noexcept {
  Call call;
  if (failed_op) *failed_op = -1;
  try {
    body(call);
    return MLXSHIM_OK;
  } catch (const Status& e) {
    if (failed_op) *failed_op = e.op;
    return call.failed(e.code, e.what());
  } catch (const std::bad_alloc&) {
    return call.failed(MLXSHIM_ERR_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return call.failed(classify(e.what()), e.what());
  } catch (...) {
    return call.failed(MLXSHIM_ERR_INTERNAL, "an unknown exception");
  }
}

}  // namespace mlxcel
