// The choice of a token. Logits are never sorted as a whole: they are counted into buckets of falling logit, and only
// the buckets at the top that can matter are gathered and sorted.
#include <algorithm>
#include <array>
#include <cmath>

#include "row_ops.h"
#include "status.h"

namespace mlxcel::native {

namespace {

// The first largest of n logits; -1 where they are no numbers.
int32_t first_largest(const VectorKernels& vectors, const float* x, int64_t n) {
  constexpr int64_t kChunk = 1024;
  float best = vectors.max(x, std::min(n, kChunk));
  int64_t chunk = 0;
  for (int64_t i = kChunk; i < n; i += kChunk)
    if (const float m = vectors.max(x + i, std::min(n - i, kChunk)); m > best) {
      best = m;
      chunk = i;
    }
  for (int64_t i = chunk; i < std::min(n, chunk + kChunk); i++)
    if (x[i] == best) return int32_t(i);
  return -1;
}

class Argmax : public RowOp {
 public:
  Argmax(Rows logits, Rows out) : logits_(logits), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++)
      *step.row<int32_t>(out_, r) = first_largest(step.vectors, step.row(logits_, r), logits_.width);
  }
  std::string describe() const override { return text("argmax [", logits_.width, "]"); }

 private:
  Rows logits_, out_;
};

struct Settings {
  float temperature, top_k, top_p, min_p, u;
};

// The choice for one row.
class Sampler {
 public:
  // weights and ids have room for n each.
  Sampler(const VectorKernels& vectors, const float* logits, int64_t n, float* weights, int32_t* ids)
      : vectors_(vectors), logits_(logits), n_(n), weights_(weights), ids_(ids) {}

  int32_t choose(const Settings& s) {
    const int32_t best = first_largest(vectors_, logits_, n_);
    if (best < 0) return best;
    top_ = logits_[best];
    if (!(s.temperature > 0) || !std::isfinite(top_)) return best;
    const float heat = 1 / std::max(s.temperature, 1e-30f);
    const bool bounded = s.top_k > 0 && s.top_k < float(n_);
    int64_t kept = 0;
    if (bounded) {
      kept = best_of(int64_t(s.top_k));
    } else if (s.top_p < 1 || s.min_p > 0) {
      kept = likely(s);
    } else {
      return from_all(heat, s.u);
    }
    kept = head(kept, s, bounded);
    double all = 0, passed = 0;
    for (int64_t i = 0; i < kept; i++) all += chance(i, heat);
    for (int64_t i = 0; i + 1 < kept; i++)
      if ((passed += chance(i, heat)) > double(s.u) * all) return ids_[i];
    return ids_[kept - 1];
  }

 private:
  // An eighth in logits each; what is 64 below the best has no weight in f32 any more.
  static constexpr int kBuckets = 512;

  int bucket(float logit) const {
    const float at = (top_ - logit) * 8;
    return at < float(kBuckets - 1) ? int(at) : kBuckets - 1;  // NaN goes to the last
  }
  double chance(int64_t i, float heat) const { return std::exp(double((logits_[ids_[i]] - top_) * heat)); }

  // Falling logits, of equals the lower id first; NaN last.
  bool before(int32_t a, int32_t b) const {
    const float x = logits_[a], y = logits_[b];
    if (x > y || x < y) return x > y;
    const bool odd_a = x != x, odd_b = y != y;
    return odd_a == odd_b ? a < b : odd_b;
  }

  // Puts the members of the buckets [first, last] into ids_, sorted; returns how many.
  int64_t gather(int first, int last) {
    int64_t count = 0;
    for (int64_t i = 0; i < n_; i++)
      if (const int b = bucket(logits_[i]); b >= first && b <= last) ids_[count++] = int32_t(i);
    std::sort(ids_, ids_ + count, [this](int32_t a, int32_t b) { return before(a, b); });
    return count;
  }

  // The k best.
  int64_t best_of(int64_t k) {
    std::array<int64_t, kBuckets> counts{};
    for (int64_t i = 0; i < n_; i++) counts[size_t(bucket(logits_[i]))]++;
    int last = 0;
    for (int64_t sum = counts[0]; sum < k;) sum += counts[size_t(++last)];
    return std::min(k, gather(0, last));
  }

  // Sums e^((logit - top) * heat) up by bucket and returns the whole.
  double weigh(float heat) {
    vectors_.exp(logits_, top_, heat, n_, weights_);
    masses_.fill(0);
    for (int64_t i = 0; i < n_; i++) masses_[size_t(bucket(logits_[i]))] += double(weights_[i]);
    double whole = 0;
    for (double mass : masses_) whole += mass;
    return whole;
  }

  // Enough of the best to hold all that top_p and min_p keep; sets whole_.
  int64_t likely(const Settings& s) {
    whole_ = weigh(1);
    int last = kBuckets - 1;
    if (s.top_p < 1) {
      double sum = masses_[0];
      for (last = 0; last < kBuckets - 1 && sum < double(s.top_p) * whole_ * (1 + 1e-9);)
        sum += masses_[size_t(++last)];
    }
    if (s.min_p > 0) last = std::min(last, bucket(top_ + std::log(std::min(s.min_p, 1.f)) - 0.01f));
    return gather(0, last);
  }

  // How many of the first `kept` candidates are left after top_p and min_p; at least 1.
  int64_t head(int64_t kept, const Settings& s, bool bounded) {
    if (bounded) {
      whole_ = 0;
      for (int64_t i = 0; i < kept; i++) whole_ += chance(i, 1);
    }
    double before = 0;
    for (int64_t i = 0; i < kept; i++) {
      const double mine = chance(i, 1);
      if (i > 0 && ((s.top_p < 1 && !(before < double(s.top_p) * whole_)) || !(mine >= double(s.min_p)))) return i;
      before += mine;
    }
    return kept;
  }

  // From all candidates: the bucket that u falls into, then within it.
  int32_t from_all(float heat, float u) {
    const double wanted = weigh(heat) * double(u);
    double passed = 0;
    int at = 0, last = kBuckets - 1;
    while (last > 0 && masses_[size_t(last)] == 0) last--;
    while (at < last && passed + masses_[size_t(at)] <= wanted) passed += masses_[size_t(at++)];
    int64_t count = gather(at, at);
    while (count > 1 && !(weights_[ids_[count - 1]] > 0)) count--;  // never one without a chance
    for (int64_t i = 0; i + 1 < count; i++)
      if ((passed += double(weights_[ids_[i]])) > wanted) return ids_[i];
    return ids_[count - 1];
  }

  const VectorKernels& vectors_;
  const float* logits_;
  const int64_t n_;
  float* weights_;
  int32_t* ids_;
  float top_ = 0;
  double whole_ = 0;
  std::array<double, kBuckets> masses_;
};

class Sample : public RowOp {
 public:
  Sample(Rows logits, Rows settings, Rows out) : logits_(logits), settings_(settings), out_(out) {}

  size_t scratch() const override { return size_t(logits_.width) * (sizeof(float) + sizeof(int32_t)); }

  void run(const Step& step, int64_t begin, int64_t end) const override {
    auto* weights = reinterpret_cast<float*>(step.scratch);
    auto* ids = reinterpret_cast<int32_t*>(weights + logits_.width);
    for (int64_t r = begin; r < end; r++) {
      const float* s = step.row(settings_, r);
      Sampler sampler(step.vectors, step.row(logits_, r), logits_.width, weights, ids);
      *step.row<int32_t>(out_, r) = sampler.choose({s[0], s[1], s[2], s[3], s[4]});
    }
  }
  std::string describe() const override { return text("sample [", logits_.width, "]"); }

 private:
  Rows logits_, settings_, out_;
};

}  // namespace

RowOpPointer make_argmax(Rows logits, Rows out) { return std::make_unique<Argmax>(logits, out); }
RowOpPointer make_sample(Rows logits, Rows settings, Rows out) {
  return std::make_unique<Sample>(logits, settings, out);
}

}  // namespace mlxcel::native
