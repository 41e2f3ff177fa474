#include "status.h"

namespace mlxcel {

std::string join(std::initializer_list<TextPart> parts) {
  std::string all;
  for (const TextPart& part : parts) {
    if (part.is_number)
      all += std::to_string(part.number);
    else
      all += part.words;
  }
  return all;
}

void fail_with(int32_t code, std::initializer_list<TextPart> parts) { throw Status(code, join(parts)); }

}  // namespace mlxcel
