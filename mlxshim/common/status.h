// Failures inside the library: an exception that carries a status code, one sentence, and the op that is to blame.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
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

// A piece of a sentence: words or a whole number.
struct TextPart {
  std::string_view words;
  int64_t number = 0;
  bool is_number = false;

  TextPart(const char* s) : words(s) {}
  TextPart(const std::string& s) : words(s) {}
  TextPart(std::string_view s) : words(s) {}
  template <std::integral T>
  TextPart(T n) : number(int64_t(n)), is_number(true) {}
};

std::string join(std::initializer_list<TextPart> parts);
[[noreturn]] void fail_with(int32_t code, std::initializer_list<TextPart> parts);

// Joins its arguments to a sentence.
template <class... Parts>
std::string text(const Parts&... parts) {
  return join({TextPart(parts)...});
}

template <class... Parts>
[[noreturn]] void fail(int32_t code, const Parts&... parts) {
  fail_with(code, {TextPart(parts)...});
}

// The commonest check: an argument of the caller.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) fail_with(MLXSHIM_ERR_ARGUMENT, {TextPart(parts)...});
}

}  // namespace mlxcel
