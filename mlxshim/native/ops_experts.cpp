// Mixtures of experts: the choice of experts and the sum of what they make.
#include <algorithm>
#include <cstring>

#include "row_ops.h"
#include "status.h"

namespace mlxcel::native {

namespace {

class Route : public RowOp {
 public:
  Route(Rows logits, int64_t k, bool normalize, Rows indices, Rows weights)
      : logits_(logits), k_(k), normalize_(normalize), indices_(indices), weights_(weights) {}

  size_t scratch() const override { return size_t(logits_.width) * (sizeof(float) + sizeof(int32_t)); }

  void run(const Step& step, int64_t begin, int64_t end) const override {
    const int64_t experts = logits_.width;
    auto* p = reinterpret_cast<float*>(step.scratch);
    auto* order = reinterpret_cast<int32_t*>(p + experts);
    for (int64_t r = begin; r < end; r++) {
      const float* x = step.row(logits_, r);
      step.vectors.exp(x, step.vectors.max(x, experts), 1, experts, p);
      float all = 0, best = 0;
      for (int64_t e = 0; e < experts; e++) {
        all += p[e];
        order[e] = int32_t(e);
      }
      // NaN counts as the least, so that the order is one.
      auto before = [&](int32_t a, int32_t b) {
        const bool more = p[a] > p[b], less = p[b] > p[a], odd_a = p[a] != p[a], odd_b = p[b] != p[b];
        return more || (odd_b && !odd_a) || (!less && odd_a == odd_b && a < b);
      };
      std::partial_sort(order, order + k_, order + experts, before);
      for (int64_t i = 0; i < k_; i++) best += p[order[i]];
      for (int64_t i = 0; i < k_; i++) {
        step.row<int32_t>(indices_, r)[i] = order[i];
        step.row(weights_, r)[i] = p[order[i]] / (normalize_ ? best : all);
      }
    }
  }
  std::string describe() const override { return text("route ", k_, " of ", logits_.width); }

 private:
  Rows logits_;
  int64_t k_;
  bool normalize_;
  Rows indices_, weights_;
};

class Combine : public RowOp {
 public:
  Combine(Rows y, Rows weights, Rows out) : y_(y), weights_(weights), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) {
      float* to = step.row(out_, r);
      std::memset(to, 0, size_t(out_.width) * sizeof(float));
      for (int64_t i = 0; i < weights_.width; i++)
        step.vectors.add_scaled(step.row(y_, r) + i * out_.width, step.row(weights_, r)[i], out_.width, to);
    }
  }
  std::string describe() const override { return text("combine ", weights_.width, " [", out_.width, "]"); }

 private:
  Rows y_, weights_, out_;
};

}  // namespace

RowOpPointer make_route(Rows logits, int64_t k, bool normalize, Rows indices, Rows weights) {
  return std::make_unique<Route>(logits, k, normalize, indices, weights);
}
RowOpPointer make_combine(Rows y, Rows weights, Rows out) { return std::make_unique<Combine>(y, weights, out); }

}  // namespace mlxcel::native
