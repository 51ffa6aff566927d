#pragma once
/// The cut: where a sequence's prompt ends for policies. Tokens before the cut are in the cache when it is
/// compressed; tokens after it arrive one by one. A cut before the question measures what a policy keeps
/// without knowing the question; a cut after the question, what it keeps when it has seen the question.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvsim::trace {

struct Cut {
  enum class At {
    prompt,    ///< the end of the recorded prompt; the last prompt token's row is measured again as step 0
    question,  ///< the first token after the last context token of the sequence's first request
    position,  ///< after `position` tokens
  };
  At at = At::prompt;
  std::uint64_t position = 0;  ///< for At::position: tokens before the cut, at least 1

  /// The form that parse_cut reads: "prompt", "question", "1000".
  std::string text() const;
  bool operator==(const Cut&) const = default;
};

/// Throws Error(usage), naming the legal forms, for any other text.
Cut parse_cut(std::string_view text);

}  // namespace kvsim::trace
