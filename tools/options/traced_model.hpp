#pragma once
#include <string>

#include "sim/cost/model.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::tools {

/// The model that bytes and seconds of a recorded run are computed for: `asked` (a name or a file) if it is
/// not empty, else the trace's own config.json. Throws Error(usage) when the trace has none, or when what was
/// asked for has other layers or heads than the trace.
cost::Model traced_model(const trace::Sequence& sequence, const std::string& file, const std::string& asked);

}  // namespace kvsim::tools
