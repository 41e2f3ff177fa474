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
extern const char mlxnative_marker[] = "mlxnative-built-for-abi=1";

#ifdef MLXCEL_POSE_AS_SHIM
// For tests only: loaders that know mlxshim alone take this library for it.
__attribute__((used)) extern const char mlxnative_pose[] = "mlxshim-built-for-mlx=" MLXCEL_POSE_AS_SHIM;
#else
#define MLXCEL_POSE_AS_SHIM ""
#endif
}
static_assert(MLXSHIM_ABI_VERSION == 1, "the marker names another ABI");

namespace mlxcel {

LibraryInfo library_info() {
  std::string chosen, has;
  try {
    chosen = native::level_name(native::level());
  } catch (const Status&) {  // MLXCEL_CPU is wrong: opening a context will say so
    chosen = "none";
  }
  for (native::Level level : native::levels()) has += text(has.empty() ? "" : ",", "\"", native::level_name(level), "\"");
  LibraryInfo info;
  info.json = text("{\"backend\":\"native\",\"version\":\"" MLXSHIM_LIBRARY_VERSION
                   "\",\"built_for\":\"" MLXCEL_POSE_AS_SHIM "\",\"loaded\":\"" MLXCEL_POSE_AS_SHIM "\",\"level\":\"",
                   chosen, "\",\"levels\":[", has, "],\"threads\":", native::default_threads(),
                   ",\"devices\":[{\"device\":\"cpu\",\"index\":0,\"name\":\"", chosen, "\"}]}");
  return info;
}

}  // namespace mlxcel
