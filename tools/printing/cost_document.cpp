#include "tools/printing/cost_document.hpp"

#include <algorithm>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/cost/holding.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/result_output.hpp"

namespace kvsim::tools {
namespace {

using analysis::CostRow;
using analysis::CostStudy;
using analysis::rounded_text;

/// bf16 is as large.
std::string element_name(const cost::Layout& layout) {
  return layout.storage.element_bits == 32 ? "fp32" : "fp16";
}

/// "8192", or "1024 to 131072 (8 values)".
std::string range_text(const std::vector<std::uint64_t>& values) {
  const auto [low, high] = std::ranges::minmax_element(values);
  if (*low == *high) return std::to_string(*low);
  return std::to_string(*low) + " to " + std::to_string(*high) + " (" + std::to_string(values.size()) +
         " values)";
}

/// Names of the policies for which `holds` is true, of those that have a price somewhere.
template <class Holds>
std::string names_of(const CostStudy& study, const std::vector<CostRow>& rows, Holds holds) {
  const auto priced = [&](const policy::Composition& policy) {
    return rows.empty() || std::ranges::any_of(rows, [&](const CostRow& row) {
             return row.params == policy.params && row.estimate;
           });
  };
  std::vector<std::string> names;
  for (const policy::Composition& policy : study.policies)
    if (priced(policy) && holds(policy)) add_once(names, policy.name);
  return joined(names);
}

bool reads_all_rows(const CostStudy& study, const policy::Composition& policy) {
  const std::uint64_t prompt = study.prompts.front();
  return cost::cost_of(policy, study.model, prompt, prompt).prompt_rows == policy::kAllRows;
}

void note_skipped(std::vector<std::string>& notes, const std::vector<CostRow>& rows) {
  for (const CostRow& row : rows)
    if (!row.skipped.empty())
      add_once(notes, "left out: " + row.policy + (row.budget.empty() ? "" : " at " + row.budget) + ": " +
                          std::string(first_line(row.skipped)));
}

}  // namespace

std::string described(const CostStudy& study) {
  const cost::Serving& serving = study.serving;
  const cost::Layout& layout = serving.layout;
  std::string text = "prompt " + range_text(study.prompts) + ", generate " + range_text(study.generates) +
                     ", batch " + range_text(study.batches) + "; cache " + element_name(layout) + ", " +
                     std::to_string(cost::full_cache_bytes(study.model, layout, 1, 1)) + " bytes per token";
  if (layout.page > 0) text += ", pages of " + std::to_string(layout.page);
  if (layout.vacated == cost::Vacated::left) text += ", evicted tokens leave holes";
  if (serving.chunk > 0) text += "; chunks of " + std::to_string(serving.chunk);
  if (serving.tensor_parallel > 1)
    text += "; " + std::to_string(serving.tensor_parallel) + " devices, bytes are of each";
  if (serving.runtime.attention == cost::Attention::eager) text += "; eager attention";
  return text;
}

std::vector<std::string> described(const cost::Offload& offload, const cost::Machine& machine) {
  std::vector<std::string> lines;
  for (const cost::Tier tier : cost::kTiers) {
    if (!offload.uses(tier)) continue;
    const std::string place = tier == cost::Tier::host ? "in host memory " : "on the SSD ";
    lines.push_back("offload  " + place + rounded_text(100 * offload.weights[tier], 2) +
                    " % of the blocks' weights and " + rounded_text(100 * offload.cache[tier], 2) +
                    " % of the cache; link " + rounded_text(machine.link(tier).bandwidth / 1e9, 1) +
                    " GB/s each way");
  }
  if (offload.buffer > 0)
    lines.push_back("buffer   " + std::to_string(offload.buffer) + " tokens per lane on the device");
  if (offload.prefetch)
    lines.push_back("loads    one layer ahead; of what a selection chooses " +
                    rounded_text(100 * *offload.prefetch, 2) + " % is guessed right");
  return lines;
}

std::string described(const analysis::CostLimits& limits) {
  std::string text = "memory " + bytes_text(limits.memory);
  if (limits.first_token) text += ", TTFT " + rounded_text(*limits.first_token, 3) + " s";
  if (limits.per_token) text += ", TPOT " + rounded_text(1e3 * *limits.per_token, 3) + " ms";
  return text;
}

std::vector<std::pair<std::string, analysis::Value>> settings_of(const CostStudy& study) {
  const cost::Serving& serving = study.serving;
  const cost::Layout& layout = serving.layout;
  const cost::Runtime& runtime = serving.runtime;
  return {
      {"kv", element_name(layout)},
      {"stored_kv_heads", cost::stored_heads(study.model, layout)},
      {"page", layout.page},
      {"head_pages", std::uint64_t{layout.head_pages}},
      {"padded", std::uint64_t{layout.padded}},
      {"holes", std::uint64_t{layout.vacated == cost::Vacated::left}},
      {"preallocated", std::uint64_t{layout.preallocated}},
      {"chunk", serving.chunk},
      {"tensor_parallel", serving.tensor_parallel},
      {"attention", runtime.attention == cost::Attention::flash ? "flash" : "eager"},
      {"rows", runtime.rows == cost::RowSource::written ? "written" : "recomputed"},
      {"cache_traffic", runtime.cache_traffic},
      {"host_floor_seconds", runtime.host_floor},
      {"weight_bits", runtime.weight_bits.value_or(study.model.weight_bits)},
      {"row_share", runtime.row_share},
      {"offload_weights", serving.offload.weights.host},
      {"offload_cache", serving.offload.cache.host},
      {"offload_weights_ssd", serving.offload.weights.ssd},
      {"offload_cache_ssd", serving.offload.cache.ssd},
      {"buffer_tokens", serving.offload.buffer},
      {"hit_rate", serving.offload.hit_rate},
      {"prefetch", serving.offload.prefetch ? analysis::Value(*serving.offload.prefetch) : analysis::Value()},
      {"machine_memory_bytes", study.machine.memory}};
}

std::vector<std::string> notes_of(const CostStudy& study, const std::vector<CostRow>& rows) {
  std::vector<std::string> notes;
  note_skipped(notes, rows);
  const std::uint64_t longest =
      *std::ranges::max_element(study.prompts) + *std::ranges::max_element(study.generates);
  if (study.model.max_context > 0 && longest > study.model.max_context)
    notes.push_back("a context of " + std::to_string(longest) + " tokens is beyond the " +
                    std::to_string(study.model.max_context) + " positions " + study.model.name +
                    " was made for");
  const std::string writers =
      names_of(study, rows, [&](const policy::Composition& policy) { return reads_all_rows(study, policy); });
  const cost::Runtime& runtime = study.serving.runtime;
  if (!writers.empty() && runtime.attention == cost::Attention::flash)
    notes.push_back(writers + ": the attention of the whole prompt is read; " +
                    (runtime.rows == cost::RowSource::written
                         ? "score matrices go through memory (or --rows recomputed)"
                         : "scores are computed twice"));
  const std::string streams = names_of(study, rows, [&](const policy::Composition& policy) {
    const std::uint64_t prompt = study.prompts.front();
    return cost::cost_of(policy, study.model, prompt, prompt).streams;
  });
  if (!streams.empty())
    notes.push_back(streams + ": the prompt passes through the cache token by token, with launches for each");
  const bool ruled = rows.empty() || rows.front().trace.empty();
  const std::string chosen =
      names_of(study, rows, [](const policy::Composition& policy) { return policy.selection.has_value(); });
  if (ruled && !chosen.empty() && study.serving.offload.buffer > 0 && study.serving.offload.hit_rate == 0)
    notes.push_back(
        chosen +
        ": nothing of what is chosen is taken to be in the buffer (--hit-rate 60%, or --trace FILE: "
        "as the replay counts)");
  const std::string uniform = names_of(study, rows, cost::splits_by_trace);
  if (ruled && !uniform.empty())
    notes.push_back(
        uniform +
        ": what is seen of a prompt splits the budget; taken as even here (--trace FILE: as it is)");
  return notes;
}

std::vector<std::string> cost_head(const analysis::CostStudy& study, const std::vector<std::string>& more) {
  std::vector<std::string> head{"model    " + analysis::described(study.model),
                                "machine  " + analysis::described(study.machine),
                                "serving  " + described(study)};
  for (std::string& line : described(study.serving.offload, study.machine)) head.push_back(std::move(line));
  head.insert(head.end(), more.begin(), more.end());
  return head;
}

analysis::Document cost_document(const analysis::CostStudy& study) {
  return {.analysis = "cost", .traces = {}, .settings = settings_of(study), .records = {}};
}

void check_cost_output(const OutputOptions& options) {
  const FormattedOutput output(options);
}

void commit_costs(const OutputOptions& options, bool quiet, const analysis::Document& document) {
  const analysis::Format format = chosen_format(options);
  FormattedOutput(format, options.output, options.overwrite).commit(document);
  if (format == analysis::Format::table || quiet) return;
  for (const std::string& line : document.notes) note(line);
}

}  // namespace kvsim::tools
