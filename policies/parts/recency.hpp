#pragma once
/// Keeps the first `sinks` positions and the newest ones: what the sliding window and StreamingLLM share.
#include "policies/api/eviction.hpp"

namespace kvsim::policy {

class Recency final : public Eviction {
 public:
  explicit Recency(std::size_t sinks) : sinks_(sinks) {}

  void finish_prompt(const Prompt& prompt) override { length_ = prompt.length(); }
  Start start(std::size_t budget) const override;

 private:
  std::size_t sinks_, length_ = 0;
};

}  // namespace kvsim::policy
