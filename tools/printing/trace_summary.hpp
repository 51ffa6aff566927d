#pragma once
/// Prints the summary of a trace for `kvsim trace info`.
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "traces/format/source.hpp"

namespace kvsim::tools {

/// Writes a table for the console: model, tokens, stored data, sizes, times, provenance.
void write_trace_table(std::ostream& out, const trace::Source& source);

/// Writes the same as one JSON object for programs: keys in snake_case, sizes in bytes, times in ns, null for
/// unknown values.
void write_trace_json(std::ostream& out, const trace::Source& source);

/// The parts of a prompt that token flags mark: "context 480 tokens (1:481), evidence none". Only parts in
/// `flags_known` appear; empty if there are none. At most `ranges` ranges each.
std::string marks_text(const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       std::size_t ranges);
inline constexpr std::size_t kMostRanges = 8;

}  // namespace kvsim::tools
