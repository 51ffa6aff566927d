#include "tools/options/chosen_sequences.hpp"

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "tools/options/mistaken_files.hpp"
#include "tools/printing/front_end.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::tools {

std::vector<ChosenSequence> chosen_sequences(const std::string& file, const std::string& asked,
                                             const std::vector<trace::Cut>& cuts) {
  require_trace(file);
  const std::shared_ptr<const trace::Source> source = trace::open_trace(file);
  const std::size_t there = source->header().sequence_leaf.size();
  if (there == 0) input_error("names no sequence to look at", file + ":/sequences/leaf");
  std::size_t begin = 0, end = asked == "all" ? there : 1;
  if (!asked.empty() && asked != "all") {
    const auto number = number_of<std::uint64_t>(asked);
    if (!number || *number >= there)
      usage_error(file + " holds sequences 0 to " + std::to_string(there - 1), "--sequence " + asked,
                  "Give one of these, or all; kvsim trace info shows them.");
    begin = *number;
    end = begin + 1;
  } else if (asked.empty() && there > 1) {
    note(file + " holds " + std::to_string(there) + " sequences; the first is taken (--sequence N|all)");
  }
  std::vector<ChosenSequence> out;
  for (std::size_t index = begin; index < end; ++index) {
    const std::string name = there > 1 ? file + '#' + std::to_string(index) : file;
    for (const trace::Cut& cut : cuts) {
      const trace::Sequence& sequence =
          out.emplace_back(ChosenSequence{name, source, trace::Sequence(*source, index, cut)}).sequence;
      if (sequence.answered_length() > 0)
        note(name + ": " + std::to_string(sequence.answered_length()) +
             " generated tokens of earlier turns are part of the prompt, which the cache held whole");
      if (cut.at == trace::Cut::At::question && sequence.instruction_before() > 0)
        note(name + ": " + std::to_string(sequence.instruction_before()) +
             " tokens before the context are part of the prompt, which policies see");
    }
  }
  return out;
}

}  // namespace kvsim::tools
