#pragma once
/// Copies a trace with other token flags, for knowledge about its tokens that comes after the run.
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::trace {

/// Writes a copy of the trace `original` to `path` with `token_flags` [n_tokens], of which the bits
/// `flags_known` are meaningful. `original` is not changed. Digests do not cover the flags, so they stay the
/// same. Throws Error(usage) when `path` exists and may not be replaced, Error(input) when `original` is not
/// a sound trace or `path` cannot be written.
void write_marked_copy(const std::string& original, const std::string& path,
                       const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       bool overwrite = false);

}  // namespace kvsim::trace
