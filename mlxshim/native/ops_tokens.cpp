// Tokens of the state, and what is done to logits before a token is chosen.
#include <algorithm>
#include <cstring>

#include "row_ops.h"
#include "status.h"

namespace mlxcel::native {

namespace {

class LoadTokens : public RowOp {
 public:
  LoadTokens(Rows tokens, Rows slots, Rows out) : tokens_(tokens), slots_(slots), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) {
      const int32_t last = step.state->last_tokens[size_t(*step.row<int32_t>(slots_, r))];
      const int32_t* from = step.row<int32_t>(tokens_, r);
      int32_t* to = step.row<int32_t>(out_, r);
      for (int64_t i = 0; i < out_.width; i++) to[i] = from[i] == MLXSHIM_TOKEN_LAST ? last : from[i];
    }
  }
  std::string describe() const override { return "load_tokens"; }

 private:
  Rows tokens_, slots_, out_;
};

class StoreTokens : public RowOp {
 public:
  StoreTokens(Rows tokens, Rows slots) : tokens_(tokens), slots_(slots) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++)
      step.state->last_tokens[size_t(*step.row<int32_t>(slots_, r))] = std::max(*step.row<int32_t>(tokens_, r), 0);
  }
  std::string describe() const override { return "store_tokens"; }

 private:
  Rows tokens_, slots_;
};

class Penalize : public RowOp {
 public:
  Penalize(Rows logits, Rows history, Rows penalties, Rows out)
      : logits_(logits), history_(history), penalties_(penalties), out_(out) {}

  size_t scratch() const override { return size_t(history_.width) * sizeof(int32_t); }

  void run(const Step& step, int64_t begin, int64_t end) const override {
    auto* held = reinterpret_cast<int32_t*>(step.scratch);
    for (int64_t r = begin; r < end; r++) {
      float* y = step.row(out_, r);
      std::memcpy(y, step.row(logits_, r), size_t(out_.width) * sizeof(float));
      const int32_t* history = step.row<int32_t>(history_, r);
      const float* penalties = step.row(penalties_, r);
      int32_t* last = std::copy_if(history, history + history_.width, held, [](int32_t token) { return token >= 0; });
      std::sort(held, last);
      for (int32_t* at = held; at < last;) {
        int32_t* next = std::upper_bound(at, last, *at);
        float& x = y[*at];
        x = (x > 0 ? x / penalties[0] : x * penalties[0]) - (float(next - at) * penalties[1] + penalties[2]);
        at = next;
      }
    }
  }
  std::string describe() const override { return text("penalize ", history_.width, " [", out_.width, "]"); }

 private:
  Rows logits_, history_, penalties_, out_;
};

class Bias : public RowOp {
 public:
  Bias(Rows logits, Rows ids, Rows values, Rows out) : logits_(logits), ids_(ids), values_(values), out_(out) {}
  void run(const Step& step, int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; r++) {
      float* y = step.row(out_, r);
      std::memcpy(y, step.row(logits_, r), size_t(out_.width) * sizeof(float));
      const int32_t* ids = step.row<int32_t>(ids_, r);
      for (int64_t i = 0; i < ids_.width; i++)
        if (ids[i] >= 0) y[ids[i]] += step.row(values_, r)[i];
    }
  }
  std::string describe() const override { return text("bias ", ids_.width, " [", out_.width, "]"); }

 private:
  Rows logits_, ids_, values_, out_;
};

}  // namespace

RowOpPointer make_load_tokens(Rows tokens, Rows slots, Rows out) {
  return std::make_unique<LoadTokens>(tokens, slots, out);
}
RowOpPointer make_store_tokens(Rows tokens, Rows slots) { return std::make_unique<StoreTokens>(tokens, slots); }
RowOpPointer make_penalize(Rows logits, Rows history, Rows penalties, Rows out) {
  return std::make_unique<Penalize>(logits, history, penalties, out);
}
RowOpPointer make_bias(Rows logits, Rows ids, Rows values, Rows out) {
  return std::make_unique<Bias>(logits, ids, values, out);
}

}  // namespace mlxcel::native
