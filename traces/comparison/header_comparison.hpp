#pragma once
/// Compares the headers of two traces and finds how many tokens they have in common from the beginning.
#include <cstdint>
#include <string>
#include <vector>

#include "traces/format/header.hpp"

namespace kvsim::trace {

struct HeaderDifference {
  std::string part;    ///< model, tokens, positions, segments, or a tensor
  std::string detail;  ///< "attn_scale: 0.25 against 0.125"
};

struct HeaderComparison {
  bool same_shape = true;    ///< of the models; if false, tensors cannot be compared
  std::uint64_t tokens = 0;  ///< common beginning, in file order: ids, positions and paths agree
  std::vector<HeaderDifference> differences{};
  std::vector<std::string> notes{};  ///< what was not compared, and why
};

/// Compares shape and arithmetic of the model, token ids, positions and segments. Ids that one side withholds
/// are not compared, nor are names, roles, flags, text, times and provenance.
HeaderComparison compare_headers(const Header& a, const Header& b);

}  // namespace kvsim::trace
