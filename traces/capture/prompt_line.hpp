#pragma once
/// One line of a JSON Lines file as prompts: as people write them, and as benchmarks do (RULER, LongBench and
/// its second version, InfiniteBench, SCBench, SQuAD, samples that lm-eval logged, batches of OpenAI's API).
/// traces/workloads/README.md says what becomes of their fields.
#include <initializer_list>
#include <vector>

#include "sim/base/strict_json.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::capture {

/// What a line's id may be called, the first that it has.
inline constexpr std::initializer_list<const char*> kIdFields{"id",     "_id",         "index",
                                                              "doc_id", "question_id", "custom_id"};

/// The items of a line, which is the `number`-th of its file: one, or one per turn of a conversation about
/// one context. Throws Error(input) naming the field, or all fields of a line that holds no prompt.
std::vector<WorkloadItem> items_of_line(const JsonObject& line, std::uint64_t number);

/// Whether it has a field of a prompt and one of an answer, or is of a batch; what they hold is not looked
/// at.
bool has_prompt_and_answer(const JsonObject& line);

}  // namespace kvsim::capture
