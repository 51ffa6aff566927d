#pragma once
/// Parses a budget as it is typed, and converts it to the tokens per lane that it means for a trace.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/composition.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct Budget {
  enum class Unit { tokens, share, bytes };
  Unit unit = Unit::tokens;
  double value = 0;  ///< tokens per lane, share of the prompt (0.25 for "25%"), or bytes of the whole cache
  std::string text;  ///< as typed, trimmed; of 0.25 the share that it means, "25%"
};

/// Parses "128", "2K", "25%", "0.25", "0.5%", "64KiB", "2MiB", "1GiB", "500MB". Throws Error(usage) with the
/// legal forms. Zero and negative budgets are refused: the token that a lane computes is always resident.
Budget parse_budget(std::string_view text);
/// Parses a comma-separated list.
std::vector<Budget> parse_budgets(std::string_view text);

/// Returns the tokens per lane of a layer without a window, rounded down. A share is floor(value * prompt);
/// bytes are floor(bytes / (lanes * bytes of one token's K and V in the trace's element type)), or, with
/// windows, the most tokens that fit. Throws Error(usage) when that is less
/// than one token.
/// With a representation, as many tokens per lane as fit at every number of tokens up to it: an exact window
/// can make fewer tokens take more bytes.
std::size_t budget_tokens(const Budget& budget, const trace::Sequence& sequence,
                          const policy::Composition& composition);

/// Returns the tokens of a lane of each layer before an allocation moves any. A share is one of what the
/// layer holds of the prompt, which a sliding window limits. Of tokens, and of bytes, every lane gets the
/// same; bytes count no more than a window in its layer, so that they buy more in the others.
std::vector<std::size_t> layer_budgets(const Budget& budget, const trace::Sequence& sequence,
                                       const policy::Composition& composition);

/// Returns the bytes of K and V of the prompt, as the full cache holds it: in layers with a window no more
/// than that.
std::uint64_t prompt_bytes(const trace::Sequence& sequence);

/// Returns the shape of one lane's cache, in the trace's element type.
policy::StorageShape storage_shape(const trace::Sequence& sequence);

/// Returns the bytes of K and V of one token in one lane, in the trace's element type.
std::size_t token_bytes(const trace::Sequence& sequence);

}  // namespace kvsim::sim
