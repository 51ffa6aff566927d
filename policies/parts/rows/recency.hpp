#pragma once
/// Keeps the first positions and the newest ones, as the sliding window and StreamingLLM do.
#include <algorithm>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

class Recency final : public Eviction {
 public:
  /// `window` 0: `sinks` first positions, and the newest with the rest of the budget. Otherwise the newest
  /// `window`, and the first positions with the rest.
  explicit Recency(std::size_t sinks, std::size_t window = 0, bool decodes = true)
      : sinks_(sinks), window_(window), decodes_(decodes) {}
  /// From parameters of these names.
  explicit Recency(const Params& params)
      : Recency(params.count("sinks"), params.count("window"), params.flag("decode")) {}

  void finish_prompt(const Prompt& prompt) override {
    length_ = prompt.length();
    first_ = prompt.first();
  }
  Start start(std::size_t budget) const override;
  /// Returns what every budget keeps; how many newest positions follow beyond `window` depends on the budget.
  Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const override {
    return {sinks_, std::max<std::size_t>(window_, 1)};
  }

 private:
  std::size_t sinks_, window_, length_ = 0, first_ = 0;
  bool decodes_;
};

}  // namespace kvsim::policy
