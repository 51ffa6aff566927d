#include "analysis/loop/recorded_items.hpp"

#include <string>

#include "sim/base/error.hpp"
#include "traces/format/header.hpp"

namespace kvsim::analysis {
namespace {

using capture::WorkloadItem;

constexpr std::uint32_t kParts = trace::kFlagQuestion | trace::kFlagContext | trace::kFlagEvidence;

}  // namespace

std::vector<WorkloadItem> recorded_items(const trace::Sequence& sequence, const std::string& name,
                                         const model::Tokenizer& tokenizer, std::uint64_t vocabulary) {
  const trace::Header& header = sequence.source().header();
  std::vector<WorkloadItem> items;
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> flags;
  const bool knows_parts = (sequence.flags_known() & trace::kFlagContext) != 0;
  bool answering = false;
  const auto begin_item = [&] {
    WorkloadItem& item = items.emplace_back();
    item.context_id = name;
    item.turn = items.size() - 1;
    item.id = name + "/" + std::to_string(item.turn);
    item.kind = header.capture.workload;
    item.ids = ids;
    item.token_flags = flags;
  };
  for (std::uint64_t position = 0; position < sequence.length(); ++position) {
    const std::uint64_t token = sequence.token(position);
    const std::int32_t id = header.token_id[token];
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary)
      input_error(id < 0 ? "token " + std::to_string(token) + " is withheld"
                         : "token " + std::to_string(token) + " is " + std::to_string(id) +
                               ", which the model does not know",
                  sequence.source().name(), "Give the run's own model, and a trace that stores its tokens.");
    const bool generated = header.segments[header.token_segment[token]].phase != trace::Phase::prompt;
    if (generated && !answering) begin_item();
    answering = generated;
    if (generated) items.back().answer_ids.push_back(id);
    ids.push_back(id);
    if (knows_parts) flags.push_back(sequence.flags(position) & kParts);
  }
  if (!answering) begin_item();
  if (items.size() == 1)
    items[0].id = header.capture.workload_item.empty() ? name : header.capture.workload_item;
  for (WorkloadItem& item : items) {
    if (item.answer_ids.empty()) continue;
    item.answers = {tokenizer.decode(item.answer_ids)};
    item.expect = workload::Expect::first;
  }
  return items;
}

}  // namespace kvsim::analysis
