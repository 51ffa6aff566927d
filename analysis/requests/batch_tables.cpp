#include "analysis/requests/batch_tables.hpp"

#include <ostream>
#include <string>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::analysis {
namespace {

using serving::BatchSummary;
using serving::DecodeReads;

/// Tokens that a layer reads, in the mean of those with a window and those without.
std::uint64_t layer_tokens(const cost::Model& model, const DecodeReads& reads) {
  double sum = 0, layers = 0;
  for (const cost::WindowRun& run : model.window_sums()) {
    sum += real(run.layers) * real(run.window == 0 ? reads.tokens : reads.within_window);
    layers += real(run.layers);
  }
  return static_cast<std::uint64_t>(sum / layers);
}

Columns<BatchRow> batch_fields(const serving::ServedModel& served) {
  using S = BatchSummary;
  const auto sum = [](auto read) {
    return [read](const BatchRow& row) { return std::invoke(read, row.summary); };
  };
  const auto share = [](std::uint64_t S::*part, std::uint64_t S::*whole) {
    return [=](const BatchRow& row) { return ratio(real(row.summary.*part), real(row.summary.*whole)); };
  };
  const auto layer_reads = [model = served.model](const DecodeReads& reads) {
    return layer_tokens(model, reads);
  };
  const auto step_bytes = [=, token_bytes = token_bytes(served)](const S& of, const DecodeReads& reads) {
    return ratio(real(layer_reads(reads)) * real(token_bytes), real(of.steps));
  };
  const auto shared = [](auto read) {
    return [read](const BatchRow& row) {
      return row.summary.shared ? as_field(read(row.summary, *row.summary.shared)) : Value();
    };
  };
  return {
      {"method", "",
       "what stands in the rows of a pass over prompts: padded, sorted, packed, unpadded, cached or grouped",
       [](const BatchRow& row) { return batching_name(row.settings.batching); }},
      {"batch", "", "requests of a batch, at most",
       [](const BatchRow& row) { return row.settings.requests; }},
      {"requests", "", "of the trace", sum(&S::requests)},
      {"batches", "", "that they make", sum(&S::batches)},
      {"rows", "", "of all passes over prompts", sum(&S::rows)},
      {"prompt_tokens", "tokens", "of all prompts", sum(&S::prompt_tokens)},
      {"computed_tokens", "tokens", "in these rows, padding included", sum(&S::computed_tokens)},
      {"padding_tokens", "tokens", "of these, what belongs to no prompt", sum(&S::padding_tokens)},
      {"padding", "share", "of the computed tokens", share(&S::padding_tokens, &S::computed_tokens)},
      {"found_tokens", "tokens", "of prompts, in no row because they were computed before",
       sum(&S::found_tokens)},
      {"found", "share", "of the prompts' tokens", share(&S::found_tokens, &S::prompt_tokens)},
      {"prompt_seconds", "s", "of the passes over prompts", sum(&S::prompt_seconds)},
      {"generated_tokens", "tokens", "of all answers", sum(&S::generated_tokens)},
      {"steps", "", "of one token for each sequence whose answer goes on", sum(&S::steps)},
      {"read_tokens", "tokens",
       "that these steps read in a layer, in the mean over layers, if every sequence reads its own",
       sum([=](const S& of) { return layer_reads(of.separate); })},
      {"step_read_bytes", "bytes",
       "of keys and values in all layers on a device that a step then reads, mean",
       sum([=](const S& of) { return step_bytes(of, of.separate); })},
      {"step_seconds", "s", "of all these steps", sum([](const S& of) { return of.separate.seconds; })},
      {"seconds", "s", "of prompts and steps", sum(&S::seconds)},
      {"shared_read_tokens", "tokens",
       "that steps read if blocks which sequences have in common are read once",
       shared([](const S&, const DecodeReads& reads) { return reads.tokens; })},
      {"shared_step_read_bytes", "bytes", "of keys and values that a step then reads, mean",
       shared(step_bytes)},
      {"partials", "",
       "results of one sequence and level of the tree that these steps write and read in each layer",
       shared([](const S&, const DecodeReads& reads) { return reads.partials; })},
      {"shared_step_seconds", "s", "of all steps with shared reads",
       shared([](const S&, const DecodeReads& reads) { return reads.seconds; })},
      {"shared_seconds", "s", "of prompts and these steps",
       shared([](const S& of, const DecodeReads& reads) { return of.prompt_seconds + reads.seconds; })}};
}

std::vector<Shown<BatchRow>> shown_columns(const BatchGrid& grid, bool shares) {
  using S = BatchSummary;
  std::vector<Shown<BatchRow>> out;
  if (grid.requests.size() > 1)
    out.push_back(
        {"batch", Align::right, [](const BatchRow& row) { return std::to_string(row.settings.requests); }});
  out.push_back(
      {"method", Align::left, [](const BatchRow& row) { return batching_name(row.settings.batching); }});
  const auto add = [&](const char* heading, auto text) {
    out.push_back({heading, Align::point, [text](const BatchRow& row) { return text(row.summary); }});
  };
  const auto count = [&](const char* heading, std::uint64_t S::*what) {
    add(heading, [what](const S& sum) { return std::to_string(sum.*what); });
  };
  const auto percent = [&](const char* heading, std::uint64_t S::*part, std::uint64_t S::*whole) {
    add(heading, [=](const S& sum) {
      return fixed_text(100 * number(ratio(real(sum.*part), real(sum.*whole))).value_or(0), 1);
    });
  };
  const auto reads = [&](const char* gib, const char* seconds, auto read) {
    add(gib, [read, model = grid.served.model, bytes = token_bytes(grid.served)](const S& sum) {
      if (sum.steps == 0) return std::string("-");
      return fixed_text(real(layer_tokens(model, read(sum))) / real(sum.steps) * real(bytes) / (1 << 30), 3);
    });
    add(seconds, [read](const S& sum) { return fixed_text(read(sum).seconds, 2); });
  };
  count("batches", &S::batches);
  count("computed tokens", &S::computed_tokens);
  percent("padding %", &S::padding_tokens, &S::computed_tokens);
  percent("found %", &S::found_tokens, &S::prompt_tokens);
  add("prompts s", [](const S& sum) { return fixed_text(sum.prompt_seconds, 2); });
  count("steps", &S::steps);
  reads("step reads GiB", "steps s", [](const S& sum) { return sum.separate; });
  if (shares) reads("shared reads GiB", "shared steps s", [](const S& sum) { return *sum.shared; });
  return out;
}

}  // namespace

std::vector<BatchRow> batch_rows(const requests::RequestTrace& trace, const BatchGrid& grid,
                                 Progress* progress) {
  cost::require_caches(grid.served.model, "a batch");
  std::vector<BatchRow> rows;
  for (const std::uint32_t requests : grid.requests)
    for (const serving::Batching method : grid.methods)
      rows.push_back({.settings = {method, requests, grid.memory / token_bytes(grid.served)}});
  std::optional<prefix::PrefixTree> tree;
  if (trace.has_blocks()) tree.emplace(trace);
  const prefix::PrefixTree* const known = tree ? &*tree : nullptr;
  if (progress != nullptr) progress->total = rows.size();
  Workers(grid.threads).run(rows.size(), [&](std::size_t i) {
    if (progress != nullptr && progress->stop) return;
    const auto batches = plan_batches(trace, known, rows[i].settings);
    rows[i].summary = run_batches(trace, known, batches, grid.served.model.window, step_price(grid.served));
    if (progress != nullptr) ++progress->done;
  });
  return rows;
}

Records batch_records(const std::vector<BatchRow>& rows, const BatchGrid& grid) {
  return table_of(batch_fields(grid.served), rows);
}

void write_batch_table(std::ostream& out, const BatchGrid& grid, const std::vector<BatchRow>& rows) {
  out << "model    " << described(grid.served.model) << "\nmachine  " << described(grid.served.machine)
      << "\nmemory   " << bytes_text(grid.memory) << "\n\n";
  const bool shares = !rows.empty() && rows.front().summary.shared;
  shown_table(shown_columns(grid, shares), rows, [](const std::string&, const std::string&) {}).print(out);
}

}  // namespace kvsim::analysis
