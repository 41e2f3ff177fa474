#include "call.h"

#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "backend.h"

namespace mlxcel {

namespace {

struct Errors {
  std::mutex mutex;
  std::map<int64_t, std::string> by_context;
};

Errors& errors() {
  static Errors* all = new Errors;
  return *all;
}

thread_local std::string thread_error;

}  // namespace

void remember_error(int64_t context, const char* sentence) noexcept {
  try {
    thread_error = sentence;
    if (context == 0) return;
    std::lock_guard lock(errors().mutex);
    errors().by_context[context] = sentence;
  } catch (...) {
    thread_error.clear();  // no memory for the sentence: none is better than an old one
  }
}

std::string recall_error(int64_t context) {
  if (context == 0) return thread_error;
  std::lock_guard lock(errors().mutex);
  auto it = errors().by_context.find(context);
  return it == errors().by_context.end() ? std::string() : it->second;
}

void forget_errors(int64_t context) noexcept {
  std::lock_guard lock(errors().mutex);
  errors().by_context.erase(context);
}

int32_t classify(const char* what) noexcept {
  for (const char* sign : {"[malloc", "allocate", "out of memory"})
    if (std::strstr(what, sign)) return MLXSHIM_ERR_MEMORY;
  for (const char* sign : {"cudaError", "CUDA error", "device-side", "illegal memory access"})
    if (std::strstr(what, sign)) return MLXSHIM_ERR_DEVICE;
  return MLXSHIM_ERR_COMPUTE;
}

void Call::unknown(int64_t handle, Kind kind) {
  fail(MLXSHIM_ERR_ARGUMENT, "handle ", handle, " is not a ", kind_name(kind),
       " (never made, destroyed, or of another kind)");
}

void Call::enter(int64_t context) {
  auto object = std::static_pointer_cast<Context>(handles().find(context, Kind::kContext));
  require(object != nullptr, "context ", context, " is gone");
  context_ = context;
  require(object->thread() == std::this_thread::get_id(),
          "a context is used by the thread that made it, and this is another one");
  if (!object->lost.empty()) throw Status(MLXSHIM_ERR_DEVICE, object->lost);
  if (entered_) return;
  entered_ = std::move(object);
  entered_->begin();
}

Call::~Call() {
  if (entered_) entered_->end();
}

int32_t Call::failed(int32_t code, const char* sentence) noexcept {
  try {
    std::string whole = sentence;
    if (entered_ && code >= MLXSHIM_ERR_MEMORY) {  // what a lost device may look like
      if (std::string fault = entered_->fault(); !fault.empty()) {
        code = MLXSHIM_ERR_DEVICE;
        if (whole.find(fault) == std::string::npos) whole += text(" (", fault, ")");
      }
      if (code == MLXSHIM_ERR_DEVICE) entered_->lost = whole;
    }
    remember_error(context_, whole.c_str());
  } catch (...) {
    remember_error(context_, sentence);
  }
  return code;
}

}  // namespace mlxcel
