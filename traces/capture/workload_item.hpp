#pragma once
/// One prompt out of a workload file, and the flags its parts give to tokens.
#include <cstdint>
#include <string>
#include <vector>

#include "traces/model/tokenizer.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::capture {

/// What capture needs of a workload::PromptItem.
struct WorkloadItem {
  std::string id;
  std::string kind;          ///< empty: the line does not say
  std::uint64_t tokens = 0;  ///< as counted when it was built
  std::string prompt;
  std::vector<workload::RoleSpan> spans;
  std::vector<std::string> answers;
};

/// The item called `id` of a JSON Lines file; the only one when `id` is empty. Throws Error(input) naming
/// file and line when a line is no item or two have one id, Error(usage) when there is no such item.
WorkloadItem read_workload_item(const std::string& path, const std::string& id);

/// TokenFlag bits question, context and evidence of each token: those of every span it shares a byte with.
/// Throws Error(input) when the tokens do not spell the prompt.
std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                      const model::Tokenizer& tokenizer);

}  // namespace kvsim::capture
