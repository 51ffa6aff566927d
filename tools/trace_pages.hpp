#pragma once
/// What `kvsim trace info` shows of a trace.
#include <iosfwd>

#include "traces/source.hpp"

namespace kvsim::tools {

/// For people: model, tokens, what is stored, sizes, times, provenance.
void write_trace_table(std::ostream& out, const trace::Source& source);

/// The same for programs, one JSON object; keys in snake_case, sizes in bytes, times in ns, unknown is null.
void write_trace_json(std::ostream& out, const trace::Source& source);

}  // namespace kvsim::tools
