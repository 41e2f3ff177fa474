#include "handles.h"

namespace mlxcel {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kContext: return "context";
    case Kind::kFile: return "file";
    case Kind::kWeights: return "weight set";
    case Kind::kState: return "state";
    case Kind::kProgram: return "program";
    case Kind::kValue: return "value";
  }
  return "object";
}

int64_t Handles::add(std::shared_ptr<Object> object, int64_t context) {
  std::lock_guard lock(mutex_);
  int64_t handle = next_++;
  object->context = context ? context : handle;
  objects_.emplace(handle, std::move(object));
  return handle;
}

std::shared_ptr<Object> Handles::find(int64_t handle, Kind kind) const {
  std::lock_guard lock(mutex_);
  auto it = objects_.find(handle);
  return it != objects_.end() && it->second->kind == kind ? it->second : nullptr;
}

std::shared_ptr<Object> Handles::take(int64_t handle, Kind kind) {
  std::lock_guard lock(mutex_);
  auto it = objects_.find(handle);
  if (it == objects_.end() || it->second->kind != kind) return nullptr;
  auto object = std::move(it->second);
  objects_.erase(it);
  return object;
}

std::vector<std::shared_ptr<Object>> Handles::take_context(int64_t context) {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Object>> taken;
  for (auto it = objects_.end(); it != objects_.begin();) {
    --it;
    if (it->second->context != context) continue;
    taken.push_back(std::move(it->second));
    it = objects_.erase(it);
  }
  return taken;
}

Handles& handles() {
  // Never destroyed: objects must not be torn down while the process exits, when the backend may be gone already.
  static Handles* table = new Handles;
  return *table;
}

}  // namespace mlxcel
