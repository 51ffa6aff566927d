#pragma once
/// Which of a trace's sequences a command looks at.
#include <memory>
#include <string>
#include <vector>

#include "traces/format/sequence.hpp"

namespace kvsim::tools {

/// What --sequence takes.
inline constexpr const char* kSequenceHelp =
    "Of a trace with several: the number of one, from 0, or all (default: the first);\n"
    "results name the trace FILE#N";

/// A sequence about to be looked at.
struct ChosenSequence {
  std::string name;  ///< the file's path; FILE#N where the file holds several sequences
  std::shared_ptr<const trace::Source> source;
  trace::Sequence sequence;
};

/// What --cut takes.
inline constexpr const char* kCutHelp =
    "Where the prompt ends for policies; what follows arrives token by token:\n"
    "prompt (the question is known), question (it is not), or a number of tokens";

/// Opens a trace. `asked`: a number, all, or empty for the first; each of them once per cut. Notes sequences
/// that are left out, and turns that have become prompt. Throws Error(usage) for what names no sequence or
/// cuts where it cannot be, Error(input) for a bad trace.
std::vector<ChosenSequence> chosen_sequences(const std::string& file, const std::string& asked,
                                             const std::vector<trace::Cut>& cuts = {trace::Cut{}});

}  // namespace kvsim::tools
