// MLX's header device.h includes fmt for the message of one error, and the wheel has no fmt: this is all that it needs.
#pragma once

#include <string>

namespace fmt {

template <class... Arguments>
std::string format(const char* text, const Arguments&...) {
  return text;
}

}  // namespace fmt
