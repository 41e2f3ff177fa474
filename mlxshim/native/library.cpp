// What this library is.
#include "backend.h"
#include "cpu/matmul.h"
#include "status.h"
#include "threads.h"

// Can be found in the file's bytes without loading it.
extern "C" {
#if defined(__GNUC__)
__attribute__((used))
#endif
extern const char mlxnative_marker[] = "mlxnative-built-for-abi=3";
}
static_assert(MLXSHIM_ABI_VERSION == 3, "the marker names another ABI");

namespace mlxcel {

LibraryInfo library_info() {
  std::string chosen, has;
  try {
    chosen = native::level_name(native::level());
  } catch (const Status&) {  // MLXCEL_CPU is wrong: opening a context will say so
    chosen = "none";
  }
  for (native::Level level : native::levels())
    has += text(has.empty() ? "" : ",", "\"", native::level_name(level), "\"");
  LibraryInfo info;
  info.json = text("{\"backend\":\"native\",\"version\":\"" MLXSHIM_LIBRARY_VERSION
                   "\",\"built_for\":\"\",\"loaded\":\"\",\"level\":\"",
                   chosen, "\",\"levels\":[", has, "],\"threads\":", native::default_threads(),
                   ",\"devices\":[{\"device\":\"cpu\",\"index\":0,\"name\":\"", chosen, "\"}]}");
  return info;
}

}  // namespace mlxcel
