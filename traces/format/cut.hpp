#pragma once
/// Where a sequence's prompt ends for policies: what stands before the cut is in the cache when it is
/// compressed, what follows arrives token by token. A cut before the question asks what a policy keeps that
/// does not know the question yet; one after it, what a policy keeps that does.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvsim::trace {

struct Cut {
  enum class At {
    prompt,    ///< the recorded prompt's end; the last prompt token's row is measured again as step 0
    question,  ///< the first token after the last context token of the sequence's first request
    position,  ///< so many tokens
  };
  At at = At::prompt;
  std::uint64_t position = 0;  ///< of At::position: tokens before the cut, at least 1

  /// As it is typed: "prompt", "question", "1000".
  std::string text() const;
  bool operator==(const Cut&) const = default;
};

/// Throws Error(usage) with the legal forms.
Cut parse_cut(std::string_view text);

}  // namespace kvsim::trace
