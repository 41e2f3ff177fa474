#include "stages.h"

#include <algorithm>
#include <cstring>

#include "status.h"
#include "threads.h"

namespace mlxcel::native {

// A single row is done in passing, when the stage before it is finished.
int RowStage::parts(const Program&, const RunArguments& run, int threads) const {
  const int64_t rows = extent.live(run.counts);
  return rows == 1 ? 0 : int(std::min<int64_t>(rows, threads));
}

void RowStage::run(const Step& step, Part part) const {
  const Share share(extent.live(step.run.counts), 1, part);
  run_rows(step, share.begin, share.end);
}

void RowStage::finish(const Step& step) const {
  if (extent.live(step.run.counts) == 1) run_rows(step, 0, 1);
}

void RowStage::run_rows(const Step& step, int64_t begin, int64_t end) const {
  constexpr int64_t kRows = 8;  // at a time
  for (; begin < end; begin += kRows)
    for (const auto& op : ops) op->run(step, begin, std::min(begin + kRows, end));
}

std::string RowStage::describe() const {
  std::string all;
  for (const auto& op : ops) all += (all.empty() ? "rows: " : ", ") + op->describe();
  return all;
}

size_t RowStage::scratch() const {
  size_t most = 0;
  for (const auto& op : ops) most = std::max(most, op->scratch());
  return most;
}

namespace {

// The parts of a product with n rows of a matrix: several a thread, so that one that is slower does fewer of them, but
// of a size that is worth being claimed.
int product_parts(const Matrix& matrix, int64_t n, int threads) {
  constexpr int64_t kWorthwhile = 64;  // rows
  if (threads == 1) return 1;
  const int64_t wanted = std::clamp<int64_t>(n / kWorthwhile, threads, 4 * threads);
  return int(std::min({wanted, (n + matrix.row_block() - 1) / matrix.row_block(), int64_t(kMostParts)}));
}

class ProductStage : public Stage {
 public:
  explicit ProductStage(Product product) : p_(std::move(product)) {}

  int parts(const Program&, const RunArguments&, int threads) const override {
    return product_parts(*p_.matrix, made_rows(), threads);
  }

  void run(const Step& step, Part part) const override {
    const int64_t rows = p_.extent.live(step.run.counts), vectors = rows * p_.vectors, n = made_rows();
    const Share share(n, p_.matrix->row_block(), part);
    if (share.begin >= share.end) return;
    const Rows& made = p_.halves ? *p_.halves : p_.out;
    const int64_t stride = p_.vectors == 1 ? made.stride : p_.matrix->rows;
    float* y = step.row(made, 0);
    multiply(step, vectors, share.begin, share.end, y, stride);
    if (p_.halves) {
      multiply(step, vectors, n + share.begin, n + share.end, y, stride);
      for (int64_t r = 0; r < rows; r++)
        step.vectors.swiglu(y + r * stride + share.begin, y + r * stride + n + share.begin, share.end - share.begin,
                            step.row(p_.out, r) + share.begin);
    }
    if (p_.residual)
      for (int64_t r = 0; r < rows; r++)
        step.vectors.add(y + r * stride + share.begin, step.row(*p_.residual, r) + share.begin, share.end - share.begin,
                         y + r * stride + share.begin);
  }

  std::string describe() const override {
    return text("product [", p_.matrix->rows, ", ", p_.matrix->columns, "] ", p_.matrix->describe(),
                p_.bias ? " + bias" : "", p_.residual ? " + residual" : "", p_.halves ? ", swiglu" : "");
  }

 private:
  // Elements of a row that is made.
  int64_t made_rows() const { return p_.halves ? p_.matrix->rows / 2 : p_.matrix->rows; }

  void multiply(const Step& step, int64_t vectors, int64_t begin, int64_t end, float* y, int64_t stride) const {
    p_.matrix->multiply(step.row<char>(p_.prepared, 0), vectors, begin, end, y, stride);
    if (p_.bias)
      for (int64_t r = 0; r < vectors; r++)
        step.vectors.add(y + r * stride + begin, p_.bias + begin, end - begin, y + r * stride + begin);
  }

  const Product p_;
};

// Parts divide the rows of every expert's matrix. Rows that share an expert are multiplied together, in groups.
class ExpertStage : public Stage {
 public:
  explicit ExpertStage(ExpertProduct product) : p_(std::move(product)) {}

  // Room for an order of all uses, a group of prepared rows, and what a group makes.
  size_t scratch() const override {
    const size_t uses = size_t(most_rows() * p_.used), experts = size_t(p_.matrix->members) + 1;
    return aligned((uses + experts) * sizeof(int32_t)) + kGroup * p_.matrix->prepared_bytes() +
           kGroup * size_t(p_.matrix->rows) * sizeof(float);
  }

  int parts(const Program&, const RunArguments&, int threads) const override {
    return product_parts(*p_.matrix, p_.matrix->rows, threads);
  }

  void run(const Step& step, Part part) const override {
    const int64_t uses = p_.extent.live(step.run.counts) * p_.used, experts = p_.matrix->members;
    const Share share(p_.matrix->rows, p_.matrix->row_block(), part);
    if (share.begin >= share.end) return;
    auto* order = reinterpret_cast<int32_t*>(step.scratch);
    int32_t* ends = order + most_rows() * p_.used;
    char* gathered = step.scratch + aligned(size_t(most_rows() * p_.used + experts + 1) * sizeof(int32_t));
    auto* made = reinterpret_cast<float*>(gathered + kGroup * p_.matrix->prepared_bytes());
    sort_by_expert(step, uses, order, ends);
    for (int64_t e = 0, at = 0; e < experts; e++)
      for (; at < ends[e]; at += std::min(kGroup, ends[e] - at))
        multiply(step, e, order + at, std::min(kGroup, ends[e] - at), share, gathered, made);
  }

  std::string describe() const override {
    return text("experts ", p_.used, " of ", p_.matrix->members, " x [", p_.matrix->rows, ", ", p_.matrix->columns,
                "] ", p_.matrix->describe(), p_.bias ? " + bias" : "");
  }

 private:
  static constexpr int64_t kGroup = 32;

  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t most_rows() const { return p_.recorded; }

  int64_t expert(const Step& step, int64_t use) const {
    return step.row<int32_t>(p_.indices, use / p_.used)[use % p_.used];
  }

  void sort_by_expert(const Step& step, int64_t uses, int32_t* order, int32_t* ends) const {
    std::fill_n(ends, p_.matrix->members + 1, 0);
    for (int64_t u = 0; u < uses; u++) ends[expert(step, u) + 1]++;
    for (int64_t e = 0; e < p_.matrix->members; e++) ends[e + 1] += ends[e];
    for (int64_t u = 0; u < uses; u++) order[ends[expert(step, u)]++] = int32_t(u);
  }

  void multiply(const Step& step, int64_t e, const int32_t* uses, int64_t count, const Share& share, char* gathered,
                float* made) const {
    const int64_t row_bytes = int64_t(p_.matrix->prepared_bytes()), n = p_.matrix->rows;
    const char* all = step.row<char>(p_.prepared, 0);
    auto prepared = [&](int64_t i) { return all + (p_.shared ? uses[i] / p_.used : uses[i]) * row_bytes; };
    const char* rows = prepared(0);
    if (count > 1) {
      for (int64_t i = 0; i < count; i++) std::memcpy(gathered + i * row_bytes, prepared(i), size_t(row_bytes));
      rows = gathered;
    }
    p_.matrix->multiply(rows, count, share.begin, share.end, made, n, e);
    for (int64_t i = 0; i < count; i++) {
      const float* y = made + i * n + share.begin;
      float* to = step.row(p_.out, uses[i] / p_.used) + uses[i] % p_.used * n + share.begin;
      if (p_.bias)
        step.vectors.add(y, p_.bias + e * n + share.begin, share.end - share.begin, to);
      else
        std::memcpy(to, y, size_t(share.end - share.begin) * sizeof(float));
    }
  }

  const ExpertProduct p_;
};

}  // namespace

StagePointer make_product(Product product) { return std::make_unique<ProductStage>(std::move(product)); }

StagePointer make_expert_product(ExpertProduct product) { return std::make_unique<ExpertStage>(std::move(product)); }

}  // namespace mlxcel::native
