#include "analysis/requests/batch_records.hpp"

#include <string>

#include "sim/base/sizes.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::analysis {
namespace {

using serving::BatchSummary;
using serving::DecodeReads;

Value share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return real(part) / real(whole);
}

/// A column and what a row has in it.
struct Said {
  ColumnInfo column;
  Value value;
};

std::vector<Said> said_of(const BatchRow& row, std::uint64_t token_bytes) {
  const BatchSummary& sum = row.summary;
  const auto per_step = [&](const DecodeReads& reads) {
    return sum.steps == 0 ? Value() : Value(real(reads.tokens) * real(token_bytes) / real(sum.steps));
  };
  std::vector<Said> out{
      {{"method", "",
        "what stands in the rows of a pass over prompts: padded, sorted, packed, unpadded, cached or "
        "grouped"},
       std::string(batching_name(row.settings.batching))},
      {{"batch", "", "requests of a batch, at most"}, std::uint64_t{row.settings.requests}},
      {{"requests", "", "of the trace"}, sum.requests},
      {{"batches", "", "that they make"}, sum.batches},
      {{"rows", "", "of all passes over prompts"}, sum.rows},
      {{"prompt_tokens", "tokens", "of all prompts"}, sum.prompt_tokens},
      {{"computed_tokens", "tokens", "in these rows, padding included"}, sum.computed_tokens},
      {{"padding_tokens", "tokens", "of these, what belongs to no prompt"}, sum.padding_tokens},
      {{"padding", "share", "of the computed tokens"}, share(sum.padding_tokens, sum.computed_tokens)},
      {{"found_tokens", "tokens", "of prompts, in no row because they were computed before"},
       sum.found_tokens},
      {{"found", "share", "of the prompts' tokens"}, share(sum.found_tokens, sum.prompt_tokens)},
      {{"prompt_seconds", "s", "of the passes over prompts"}, sum.prompt_seconds},
      {{"generated_tokens", "tokens", "of all answers"}, sum.generated_tokens},
      {{"steps", "", "of one token for each sequence whose answer goes on"}, sum.steps},
      {{"read_tokens", "tokens", "that these steps read in each layer if every sequence reads its own"},
       sum.separate.tokens},
      {{"step_read_bytes", "bytes",
        "of keys and values in all layers on a device that a step then reads, mean"},
       per_step(sum.separate)},
      {{"step_seconds", "s", "of all these steps"}, sum.separate.seconds},
      {{"seconds", "s", "of prompts and steps"}, sum.seconds()}};
  const auto say = [&](const char* key, const char* unit, const char* what, const auto& of) {
    out.push_back({{key, unit, what}, sum.shared ? Value(of(*sum.shared)) : Value()});
  };
  say("shared_read_tokens", "tokens",
      "that steps read if blocks which sequences have in common are read once",
      [](const DecodeReads& reads) { return reads.tokens; });
  say("shared_step_read_bytes", "bytes", "of keys and values that a step then reads, mean", per_step);
  say("partials", "",
      "results of one sequence and level of the tree that these steps write and read in each layer",
      [](const DecodeReads& reads) { return reads.partials; });
  say("shared_step_seconds", "s", "of all steps with shared reads",
      [](const DecodeReads& reads) { return reads.seconds; });
  say("shared_seconds", "s", "of prompts and these steps",
      [&](const DecodeReads& reads) { return sum.prompt_seconds + reads.seconds; });
  return out;
}

}  // namespace

std::vector<BatchRow> batch_rows(const requests::RequestTrace& trace, const BatchGrid& grid,
                                 Progress* progress) {
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
  Records out;
  const std::uint64_t bytes = token_bytes(grid.served);
  for (const BatchRow& row : rows) {
    out.columns.clear();
    out.rows.emplace_back();
    for (Said& said : said_of(row, bytes)) {
      out.columns.push_back(std::move(said.column));
      out.rows.back().push_back(std::move(said.value));
    }
  }
  return out;
}

}  // namespace kvsim::analysis
