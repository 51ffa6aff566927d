#include "analysis/requests/batch_table.hpp"

#include <ostream>
#include <string>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/byte_text.hpp"

namespace kvsim::analysis {
namespace {

using serving::BatchSummary;
using serving::DecodeReads;

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fixed_text(100 * ratio(part, whole), 1);
}

std::string step_gib(const BatchSummary& sum, const DecodeReads& reads, std::uint64_t token_bytes) {
  if (sum.steps == 0) return "-";
  return fixed_text(ratio(reads.tokens, sum.steps) * static_cast<double>(token_bytes) / (1 << 30), 3);
}

}  // namespace

void write_batch_table(std::ostream& out, const BatchGrid& grid, const std::vector<BatchRow>& rows) {
  out << "model    " << described(grid.served.model) << "\nmachine  " << described(grid.served.machine)
      << "\nmemory   " << bytes_text(grid.memory) << "\n\n";
  const bool shares = !rows.empty() && rows.front().summary.shared;
  const std::uint64_t bytes = token_bytes(grid.served);
  TextTable table;
  if (grid.requests.size() > 1) table.add_column("batch", Align::right);
  table.add_column("method", Align::left);
  for (const char* heading : {"batches", "computed tokens", "padding %", "found %", "prompts s", "steps",
                              "step reads GiB", "steps s"})
    table.add_column(heading, Align::point);
  if (shares)
    for (const char* heading : {"shared reads GiB", "shared steps s"})
      table.add_column(heading, Align::point);
  for (const BatchRow& row : rows) {
    const BatchSummary& sum = row.summary;
    std::vector<std::string> fields;
    if (grid.requests.size() > 1) fields.push_back(std::to_string(row.settings.requests));
    for (std::string& field : std::vector<std::string>{
             batching_name(row.settings.batching), std::to_string(sum.batches),
             std::to_string(sum.computed_tokens), percent(sum.padding_tokens, sum.computed_tokens),
             percent(sum.found_tokens, sum.prompt_tokens), fixed_text(sum.prompt_seconds, 2),
             std::to_string(sum.steps), step_gib(sum, sum.separate, bytes),
             fixed_text(sum.separate.seconds, 2)})
      fields.push_back(std::move(field));
    if (shares) {
      fields.push_back(step_gib(sum, *sum.shared, bytes));
      fields.push_back(fixed_text(sum.shared->seconds, 2));
    }
    table.add_row(fields);
  }
  table.print(out);
}

}  // namespace kvsim::analysis
