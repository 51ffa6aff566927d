#pragma once
/// Reads a file of token ids: a JSON array of integers, or integers separated by white space.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::capture {

/// Throws Error(input) naming `where` and the index of an entry that is not an id below `vocab_size`.
std::vector<std::int32_t> parse_token_ids(std::string_view text, std::uint64_t vocab_size,
                                          const std::string& where);

}  // namespace kvsim::capture
