#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>

#include "tools/commands/command.hpp"
#include "tools/printing/trace_summary.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/token_selection.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::tools {
namespace {

using workload::Role;

constexpr std::array kRoles{Role::context, Role::question, Role::evidence};

struct TraceMarkOptions {
  std::string file, output, occurrence;
  std::array<std::vector<std::string>, kRoles.size()> said;  ///< by kRoles
  std::vector<std::string> cleared;
  bool overwrite = false;
};

std::optional<std::uint64_t> chosen_occurrence(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text == "all") return trace::kEveryOccurrence;
  const bool number = text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10;
  if (!number || std::stoul(text) == 0)
    usage_error("'" + text + "' is neither a number from 1 nor all", "--occurrence");
  return std::stoul(text);
}

void mark(const TraceMarkOptions& options) {
  const std::optional<std::uint64_t> occurrence = chosen_occurrence(options.occurrence);
  require_ending(options.output, analysis::Format::h5);
  refuse_output(options.output, options.overwrite);
  const std::unique_ptr<trace::Source> source = trace::open_trace(options.file);
  const trace::Header& header = source->header();
  std::vector<std::uint32_t> flags = header.token_flags;
  std::uint32_t known = header.flags_known;
  bool changed = false;
  const auto forget = [&](std::uint32_t bit) {
    for (std::uint32_t& token : flags) token &= ~bit;
    known &= ~bit;
  };
  for (std::size_t r = 0; r < kRoles.size(); ++r) {
    const std::uint32_t bit = role_flag(kRoles[r]);
    const std::string name = role_name(kRoles[r]);
    const bool cleared = std::ranges::count(options.cleared, name) > 0;
    // A bit that is not known says nothing, whatever the tokens have there.
    if (cleared || (known & bit) == 0) forget(bit);
    for (const std::string& said : options.said[r]) {
      for (const std::uint64_t token : trace::select_tokens(header, said, occurrence, "--" + name))
        flags[token] |= bit;
      known |= bit;
    }
    changed |= cleared || !options.said[r].empty();
  }
  if (!changed)
    usage_error("there is nothing to mark", "trace mark",
                "Add --evidence, --context or --question, each with TEXT or token numbers, or --clear.");
  trace::write_marked_copy(options.file, options.output, flags, known, options.overwrite);
  const std::string marks = marks_text(flags, known, kMostRanges);
  front_end().results() << options.output << ": "
                        << (marks.empty() ? "no part of the prompt is marked" : marks) << '\n';
}

}  // namespace

void add_trace_mark(Command trace) {
  Command command = trace.add_subcommand(
      "mark",
      "Copies a trace and marks in the copy which of the prompt's tokens are evidence, context, question",
      R"x(Examples:
  kvsim trace mark run.h5 --evidence "The code of the red safe is 4721." -o marked.h5
  kvsim trace mark run.h5 --context 1:900 --question 900:931 --evidence 120:135,300 -o marked.h5
  kvsim trace mark run.h5 --evidence text:4721 --occurrence 2 -o marked.h5
  kvsim trace mark marked.h5 --clear evidence --evidence "blue safe" -o other.h5
)x");
  const auto options = std::make_shared<TraceMarkOptions>();
  command.add_required("TRACE", options->file, "", "Trace; it stays as it is");
  command.add_required("-o,--output", options->output, "", "Trace to write");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  const std::array help{
      "What is to be read: TEXT that the prompt holds, or token numbers such as 120:135,300\n"
      "(120 to 134, and 300); text that looks like numbers is written text:4721. Any number of times",
      "Instruction or question, said likewise", "Where the answer stands, said likewise"};
  for (std::size_t r = 0; r < kRoles.size(); ++r)
    command.add_option("--" + std::string(role_name(kRoles[r])), options->said[r], "TEXT|TOKENS", help[r]);
  command.add_option("--occurrence", options->occurrence, "N|all",
                     "Which one is meant of TEXT that occurs several times, from 1, or all");
  command.add_option("--clear", options->cleared, "",
                     "Forgets these marks first: context, question or evidence",
                     one_of({"context", "question", "evidence"}));
  command.callback([options] { mark(*options); });
}

}  // namespace kvsim::tools
