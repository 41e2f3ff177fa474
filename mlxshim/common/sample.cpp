#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace mlxcel {

namespace {

struct Candidate {
  float logit;
  int32_t id;

  // Falling by logit, of equals the lower id first.
  bool operator<(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// The candidates of a row, brought into order as far as they are asked for.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) {
    all_.reserve(logits.size());
    for (size_t i = 0; i < logits.size(); i++)
      all_.push_back({std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i], int32_t(i)});
  }

  const Candidate& operator[](size_t rank) {
    if (rank >= sorted_) sort(std::max(rank + 1, std::max(size_t(64), 4 * sorted_)));
    return all_[rank];
  }

  // Keeps the best n only.
  void keep(size_t n) {
    if (n >= all_.size()) return;
    sort(n);
    all_.resize(n);
  }

  size_t size() const { return all_.size(); }

  // The sum over all candidates, in any order, of e^((logit - best) / temperature).
  double weight(double best, double temperature) const {
    double sum = 0;
    for (const Candidate& c : all_) sum += std::exp((c.logit - best) / temperature);
    return sum;
  }

 private:
  // Sorts the first n.
  void sort(size_t n) {
    n = std::min(n, all_.size());
    if (n <= sorted_) return;
    auto from = all_.begin() + std::ptrdiff_t(sorted_), to = all_.begin() + std::ptrdiff_t(n);
    if (to != all_.end()) std::nth_element(from, to, all_.end());
    std::sort(from, to);
    sorted_ = n;
  }

  std::vector<Candidate> all_;
  size_t sorted_ = 0;
};

}  // namespace

int32_t sample_row(std::span<const float> logits, const SampleSettings& s) {
  Ranking ranking(logits);
  if (s.top_k > 0 && s.top_k < double(ranking.size())) ranking.keep(size_t(std::max(1.0, s.top_k)));
  const double best = ranking[0].logit;
  if (!(s.temperature > 0) || !std::isfinite(best)) return ranking[0].id;

  // How many are left by top_p and min_p: a head of the ranking, at least the best.
  size_t kept = ranking.size();
  if (s.top_p < 1 || s.min_p > 0) {
    const double enough = s.top_p < 1 ? s.top_p * ranking.weight(best, 1) : std::numeric_limits<double>::infinity();
    double before = 1;  // e^0, the weight of the best
    for (size_t i = 1; i < kept; i++) {
      const double mine = std::exp(ranking[i].logit - best);
      if (before >= enough || mine < s.min_p) {
        kept = i;
        break;
      }
      before += mine;
    }
  }
  ranking.keep(kept);

  const double target = s.u * ranking.weight(best, s.temperature);
  double sum = 0;
  for (size_t i = 0; i + 1 < kept; i++) {
    sum += std::exp((ranking[i].logit - best) / s.temperature);
    if (sum > target) return ranking[i].id;
  }
  return ranking[kept - 1].id;
}

}  // namespace mlxcel
