#include <algorithm>
#include <cstring>

#include "backend.h"
#include "status.h"

namespace mlxcel {

void WeightSource::read(void* to, int64_t at, int64_t n) const {
  char* out = static_cast<char*>(to);
  for (const Part& part : parts_) {
    if (n == 0) return;
    if (at >= part.bytes) {
      at -= part.bytes;
      continue;
    }
    const int64_t take = std::min(n, part.bytes - at);
    if (part.file)
      part.file->read(out, size_t(take), part.offset + at);
    else
      std::memcpy(out, static_cast<const char*>(part.data) + at, size_t(take));
    out += take;
    n -= take;
    at = 0;
  }
  if (n != 0) fail(MLXSHIM_ERR_INTERNAL, "a weight was read past its end");
}

std::string LoadedProgram::describe() const {
  std::string out;
  for (size_t i = 0; i < program.ops.size(); i++) {
    const Op& op = program.ops[i];
    out += text(i, " ", op.facts->name);
    for (int k = 0; k < op.facts->outputs; k++) out += " " + program.types[size_t(op.first_output + k)].print();
    out += "\n";
  }
  return out;
}

}  // namespace mlxcel
