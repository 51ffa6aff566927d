#pragma once
/// What `kvsim trace info` shows of a trace.
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "traces/format/source.hpp"

namespace kvsim::tools {

/// For people: model, tokens, what is stored, sizes, times, provenance.
void write_trace_table(std::ostream& out, const trace::Source& source);

/// The same for programs, one JSON object; keys in snake_case, sizes in bytes, times in ns, unknown is null.
void write_trace_json(std::ostream& out, const trace::Source& source);

/// The parts of a prompt that token flags mark: "context 480 tokens (1:481), evidence none". What
/// `flags_known` leaves out is left out; empty if that is everything. At most `ranges` ranges each.
std::string marks_text(const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       std::size_t ranges);
inline constexpr std::size_t kMostRanges = 8;

}  // namespace kvsim::tools
