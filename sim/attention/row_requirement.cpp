#include "sim/attention/row_requirement.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {
namespace {

bool holds_last(const trace::Sequence& sequence, std::size_t rows) {
  return trace::first_row(sequence) <= sequence.prompt_length() - rows;
}

/// Returns "all 1000" or "the last 64 of 1000".
std::string of_prompt(std::size_t rows, std::size_t prompt) {
  if (rows == prompt) return "all " + std::to_string(prompt);
  return "the last " + std::to_string(rows) + " of " + std::to_string(prompt);
}

/// Throws the Error(usage) of a trace that lacks the queries of the last `rows` prompt tokens. `in_sum`: the
/// rows that suffice beside column statistics.
[[noreturn]] void refuse(const trace::Sequence& sequence, std::size_t rows, std::size_t in_sum,
                         const std::string& who) {
  const std::size_t prompt = sequence.prompt_length();
  std::string hint = "Capture with --queries ";
  hint += rows == prompt ? "all." : "window:" + std::to_string(rows) + " or all.";
  if (in_sum < rows) {
    hint = "Capture with --queries all, or window:" + std::to_string(std::max<std::size_t>(in_sum, 1)) +
           ", which stores column statistics, too.";
  }
  usage_error("needs the queries of " + of_prompt(rows, prompt) + " prompt tokens; this trace holds " +
                  held_queries(sequence),
              who, hint);
}

}  // namespace

RowRequirement row_requirement(const trace::Sequence& sequence, const policy::PromptObserver& observer,
                               const std::string& who) {
  const std::size_t prompt = sequence.prompt_length();
  const std::size_t rows = std::min(observer.prompt_rows(), prompt),
                    in_sum = std::min(observer.rows_beside_columns(), prompt);
  if (holds_last(sequence, rows)) return {rows, false};
  if (in_sum < rows && sequence.has_column_statistics() && holds_last(sequence, in_sum))
    return {in_sum, true};
  refuse(sequence, rows, in_sum, who);
}

void require_queries(const trace::Sequence& sequence, std::size_t rows, const std::string& who) {
  const std::size_t needed = std::min<std::size_t>(rows, sequence.prompt_length());
  if (sequence.first_query() > sequence.prompt_length() - needed) refuse(sequence, needed, needed, who);
}

void require_rows(const trace::Sequence& sequence, std::size_t rows, const std::string& who) {
  const std::size_t needed = std::min<std::size_t>(rows, sequence.prompt_length());
  if (!holds_last(sequence, needed)) refuse(sequence, needed, needed, who);
}

void require_measured_queries(const trace::Sequence& sequence, const std::string& who) {
  if (sequence.first_query() <= sequence.first_measured()) return;
  usage_error("needs the queries of the measured tokens; this trace holds attention rows in their place", who,
              "Capture with --queries all, or import them with the rows.");
}

std::string held_queries(const trace::Sequence& sequence) {
  const std::size_t prompt = sequence.prompt_length(),
                    last = prompt - std::min<std::size_t>(sequence.first_query(), prompt),
                    others = sequence.held_queries(prompt) - last;
  std::string out = last > 0 ? "those of the last " + std::to_string(last) : "";
  if (others > 0)
    out +=
        (last > 0 ? " and of " : "those of ") + std::to_string(others) + (last > 0 ? " others" : " of them");
  return out.empty() ? "none of them" : out;
}

}  // namespace kvsim::sim
