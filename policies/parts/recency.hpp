#pragma once
/// Keeps the first positions and the newest ones: what the sliding window and StreamingLLM share.
#include <algorithm>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

class Recency final : public Eviction {
 public:
  /// The newest are what `sinks` leave of the budget or, if `window` is not 0, so many: then the first are
  /// what they leave.
  explicit Recency(std::size_t sinks, std::size_t window = 0, bool decodes = true)
      : sinks_(sinks), window_(window), decodes_(decodes) {}

  void finish_prompt(const Prompt& prompt) override { length_ = prompt.length(); }
  Start start(std::size_t budget) const override;
  /// What every budget keeps; the newest of a longer window follow from the budget.
  Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const override {
    return {sinks_, std::max<std::size_t>(window_, 1)};
  }

 private:
  std::size_t sinks_, window_, length_ = 0;
  bool decodes_;
};

}  // namespace kvsim::policy
