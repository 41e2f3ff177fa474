// Failures inside the library: an exception that carries a status code, one sentence, and the op that is to blame.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "mlxshim.h"

namespace mlxcel {

class Status : public std::runtime_error {
 public:
  Status(int32_t code, std::string message, int64_t op = -1)
      : std::runtime_error(std::move(message)), code(code), op(op) {}

  int32_t code;  // MLXSHIM_ERR_…
  int64_t op;    // number of the op in its program, -1: none of them
};

// Joins its arguments to a sentence.
template <class... Parts>
std::string text(Parts&&... parts) {
  std::ostringstream out;
  (out << ... << std::forward<Parts>(parts));
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(int32_t code, Parts&&... parts) {
  throw Status(code, text(std::forward<Parts>(parts)...));
}

// The commonest check: an argument of the caller.
template <class... Parts>
void require(bool ok, Parts&&... parts) {
  if (!ok) fail(MLXSHIM_ERR_ARGUMENT, std::forward<Parts>(parts)...);
}

}  // namespace mlxcel
