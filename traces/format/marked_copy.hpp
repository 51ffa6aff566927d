#pragma once
/// A trace with other token flags: what is known of its tokens may come after the run.
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::trace {

/// Writes PATH: the bytes of the trace ORIGINAL, which stays as it is, but for the flags of its tokens
/// [n_tokens] and which of their bits are known. All that digests cover stays the same, and so do they.
/// Throws Error(usage) when PATH exists and may not be replaced, Error(input) when ORIGINAL is no sound trace
/// or PATH cannot be written.
void write_marked_copy(const std::string& original, const std::string& path,
                       const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       bool overwrite = false);

}  // namespace kvsim::trace
