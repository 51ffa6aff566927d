#pragma once
/// A budget as people type it, and the tokens per lane it means for a trace.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct Budget {
  enum class Unit { tokens, share, bytes };
  Unit unit = Unit::tokens;
  double value = 0;  ///< tokens per lane, share of the prompt (0.25 for "25%"), or bytes of the whole cache
  std::string text;  ///< as typed, trimmed
};

/// "128", "25%", "0.5%", "64KiB", "2MiB", "1GiB", "500MB". Throws Error(usage) with the legal forms; zero and
/// negative budgets are refused: a lane always holds the token it is computing.
Budget parse_budget(std::string_view text);
/// Comma list.
std::vector<Budget> parse_budgets(std::string_view text);

/// Tokens per lane, rounded down, at least 1 (Error usage when it comes to less than one token).
/// share: floor(value * prompt). bytes: floor(bytes / (lanes * bytes of one token's K and V in the trace's
/// elem)).
std::size_t budget_tokens(const Budget& budget, const trace::Sequence& sequence);

/// K and V of one token in one lane, in the trace's element type.
std::size_t token_bytes(const trace::Sequence& sequence);

}  // namespace kvsim::sim
