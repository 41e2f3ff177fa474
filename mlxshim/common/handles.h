// The handle table: numbers that are never used twice stand for objects of a known kind.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace mlxcel {

enum class Kind { kContext, kFile, kWeights, kState, kProgram, kValue };

const char* kind_name(Kind kind);

// Everything that a handle can stand for.
class Object {
 public:
  explicit Object(Kind kind) : kind(kind) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  const Kind kind;
  int64_t context = 0;  // handle of the context that it was made from; of a context, its own
};

class Handles {
 public:
  // Adds an object that belongs to `context`; 0 makes the object its own context.
  int64_t add(std::shared_ptr<Object> object, int64_t context);
  // The object, or null where the handle is unknown or of another kind.
  std::shared_ptr<Object> find(int64_t handle, Kind kind) const;
  // Takes the object out of the table; null as above.
  std::shared_ptr<Object> take(int64_t handle, Kind kind);
  // Takes out all that belongs to a context, itself included; what was made last comes first.
  std::vector<std::shared_ptr<Object>> take_context(int64_t context);

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 1;
  std::map<int64_t, std::shared_ptr<Object>> objects_;
};

// The one table of the process.
Handles& handles();

}  // namespace mlxcel
