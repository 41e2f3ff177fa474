#include "weights.h"

#include <mlx/io/load.h>
#include <algorithm>
#include <memory>
#include <sstream>

#include "../common/convert.h"
#include "dtype.h"
#include "status.h"

namespace mlxcel {

namespace {

const char* safetensors_name(int64_t dtype) {
  switch (dtype) {
    case MLXSHIM_DTYPE_BOOL: return "BOOL";
    case MLXSHIM_DTYPE_U8: return "U8";
    case MLXSHIM_DTYPE_I8: return "I8";
    case MLXSHIM_DTYPE_U16: return "U16";
    case MLXSHIM_DTYPE_I16: return "I16";
    case MLXSHIM_DTYPE_U32: return "U32";
    case MLXSHIM_DTYPE_I32: return "I32";
    case MLXSHIM_DTYPE_U64: return "U64";
    case MLXSHIM_DTYPE_I64: return "I64";
    case MLXSHIM_DTYPE_F16: return "F16";
    case MLXSHIM_DTYPE_BF16: return "BF16";
    case MLXSHIM_DTYPE_F32: return "F32";
    default: fail(MLXSHIM_ERR_UNSUPPORTED, "a weight of ", dtype_name(dtype), " cannot be loaded to a GPU");
  }
}

// A weight dressed up as a safetensors file of one tensor, because MLX offers its Load primitive in no other way.
class SafetensorsView : public mx::io::Reader {
 public:
  SafetensorsView(const WeightFacts& facts, const WeightSource& source) : source_(source) {
    std::ostringstream header;
    header << "{\"w\":{\"dtype\":\"" << safetensors_name(facts.stored_dtype) << "\",\"shape\":[";
    for (int i = 0; i < facts.type.ndim; i++) header << (i ? "," : "") << facts.type.dims[size_t(i)];
    header << "],\"data_offsets\":[0," << facts.type.elements() * dtype_size(facts.stored_dtype) << "]}}";
    const std::string json = header.str();
    for (int i = 0; i < 8; i++) head_ += char(json.size() >> 8 * i);
    head_ += json;
    size_ = head_.size() + size_t(facts.type.elements() * dtype_size(facts.stored_dtype));
  }

  bool is_open() const override { return true; }
  bool good() const override { return true; }
  size_t tell() override { return at_; }
  void seek(int64_t offset, std::ios_base::seekdir way) override {
    const size_t from = way == std::ios_base::cur ? at_ : way == std::ios_base::end ? size_ : 0;
    at_ = from + size_t(offset);
  }
  void read(char* data, size_t n) override {
    read(data, n, at_);
    at_ += n;
  }
  void read(char* data, size_t n, size_t offset) override {
    if (offset < head_.size()) {
      const size_t take = std::min(n, head_.size() - offset);
      std::copy_n(head_.data() + offset, take, data);
      data += take;
      n -= take;
      offset += take;
    }
    try {
      source_.read(data, int64_t(offset - head_.size()), int64_t(n));
    } catch (const Status& failure) {
      failure_ = std::make_unique<Status>(failure);
    }
  }
  std::string label() const override { return "a weight"; }

  // MLX may read on a thread of its own, from which an exception must not come.
  void check() const {
    if (failure_) throw Status(*failure_);
  }

 private:
  WeightSource source_;
  std::string head_;
  size_t at_ = 0, size_ = 0;
  std::unique_ptr<Status> failure_;
};

}  // namespace

mx::array load_to_host(const WeightFacts& facts, const WeightSource& source) {
  const int64_t n = facts.type.elements(), kept = dtype_size(facts.type.dtype), stored = dtype_size(facts.stored_dtype);
  auto buffer = mx::allocator::malloc(size_t(n * kept));
  char* to = static_cast<char*>(buffer.buffer().raw_ptr());
  if (facts.type.dtype == facts.stored_dtype) {
    source.read(to, 0, n * kept);
  } else {
    constexpr int64_t kPiece = int64_t(1) << 18;  // elements
    std::vector<char> piece(size_t(std::min(n, kPiece) * stored));
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t m = std::min(kPiece, n - i);
      source.read(piece.data(), i * stored, m * stored);
      convert_floats(piece.data(), facts.stored_dtype, to + i * kept, facts.type.dtype, size_t(m));
    }
  }
  return mx::array(std::move(buffer), shape_of(facts.type), to_mlx(facts.type.dtype));
}

mx::array load_to_device(const WeightFacts& facts, const WeightSource& source, mx::Stream stream) {
  auto view = std::make_shared<SafetensorsView>(facts, source);
  mx::array loaded = mx::load_safetensors(view, stream).first.at("w");
  mx::array kept =
      facts.type.dtype == facts.stored_dtype ? loaded : mx::astype(loaded, to_mlx(facts.type.dtype), stream);
  mx::eval(kept);
  view->check();
  return kept;
}

void MlxWeights::load(const WeightFacts& facts, const WeightSource& source) {
  arrays_.push_back(gpu_ ? load_to_device(facts, source, stream_) : load_to_host(facts, source));
}

}  // namespace mlxcel
