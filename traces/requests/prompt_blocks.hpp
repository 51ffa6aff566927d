#pragma once
/// The blocks of a prompt that grows, known by the pieces of text it is made of.
#include <algorithm>
#include <cstdint>

#include "sim/base/rng.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

class PromptBlocks {
 public:
  explicit PromptBlocks(std::uint32_t block_tokens) : size_(block_tokens) {}

  /// Appends `tokens` tokens of a text. Equal keys are equal texts, of which this is the beginning.
  void append(std::uint64_t text_key, std::uint64_t tokens) {
    std::uint64_t at = 0;
    while (at < tokens) {
      const std::uint64_t taken = std::min(tokens - at, size_ - tokens_ % size_);
      state_ = combine({state_, text_key, at, taken});
      at += taken;
      tokens_ += taken;
      if (tokens_ % size_ == 0) whole_.push_back(state_);
    }
  }

  std::uint64_t tokens() const { return tokens_; }
  const std::vector<BlockId>& whole() const { return whole_; }
  /// Appends the ids of all blocks, that of the rest included, to `out`.
  void append_to(std::vector<BlockId>& out) const {
    out.insert(out.end(), whole_.begin(), whole_.end());
    if (tokens_ % size_ != 0) out.push_back(state_);
  }

 private:
  std::uint64_t size_, tokens_ = 0;
  std::uint64_t state_ = 0;  ///< a digest of all pieces so far
  std::vector<BlockId> whole_;
};

}  // namespace kvsim::requests
