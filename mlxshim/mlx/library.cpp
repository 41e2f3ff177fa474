// What this library was built for, and whether that is what it runs with.
#include <mlx/version.h>
#include <cstring>

#include "backend.h"
#include "convert.h"
#include "status.h"

#define MLXCEL_TEXT_(x) #x
#define MLXCEL_TEXT(x) MLXCEL_TEXT_(x)
#define MLXCEL_BUILT_FOR \
  MLXCEL_TEXT(MLX_VERSION_MAJOR) "." MLXCEL_TEXT(MLX_VERSION_MINOR) "." MLXCEL_TEXT(MLX_VERSION_PATCH)

// Can be found in the file's bytes without loading it.
extern "C" {
#if defined(__GNUC__)
__attribute__((used))
#endif
const char mlxshim_built_for_marker[] = "mlxshim-built-for-mlx=" MLXCEL_BUILT_FOR;
}

namespace mlxcel {

namespace {

std::string json_text(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += (unsigned char)(c) < 32 ? ' ' : c;
  }
  return out + '"';
}

std::string device_json(const char* kind, int index, const mx::Device& device) {
  std::string name;
  const auto& info = mx::device_info(device);
  if (auto it = info.find("device_name"); it != info.end())
    if (auto* words = std::get_if<std::string>(&it->second)) name = *words;
  return text("{\"device\":\"", kind, "\",\"index\":", index, ",\"name\":", json_text(name), "}");
}

}  // namespace

LibraryInfo library_info() {
  const std::string built = std::strchr(mlxshim_built_for_marker, '=') + 1;
  const std::string loaded = mx::version();
  LibraryInfo info;
  std::string devices;
  if (built == loaded) {
    devices = device_json("cpu", 0, mx::Device(mx::Device::cpu));
    for (int i = 0; mx::is_available(mx::Device(mx::Device::gpu, i)) && i < mx::device_count(mx::Device::gpu); i++)
      devices += "," + device_json("cuda", i, mx::Device(mx::Device::gpu, i));
  } else {
    info.mismatch = text("this mlxshim was built for MLX ", built, ", but the MLX beside it is ", loaded);
  }
  info.json = text("{\"backend\":\"mlx\",\"version\":\"" MLXSHIM_LIBRARY_VERSION "\",\"built_for\":", json_text(built),
                   ",\"loaded\":", json_text(loaded), ",\"devices\":[", devices, "]}");
  return info;
}

}  // namespace mlxcel
