#pragma once
/// Items of a workload that ask about one context, as turns of a closed loop; and the items of a recorded
/// run: turns of a chat, and questions of a tree about one document.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/loop/closed_loop.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/format/sequence.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::analysis {

/// The items that are answered in one loop: consecutive ones about one context, in the order of their turns.
std::vector<std::span<const capture::WorkloadItem>> by_context(std::span<const capture::WorkloadItem> items);

/// The turns of items about one context that follow each other. The question of an item is what it has after
/// the earlier questions and answers, if it begins with them (workload kind conversation), or else after the
/// context (kind turns). `prompt`: the tokens of the first item. Throws Error(input) with an item's id when
/// it is no question about the same context, or when a question or answer does not follow as tokens of its
/// own.
std::vector<sim::LoopTurn> following_turns(std::span<const capture::WorkloadItem> items,
                                           const std::vector<std::int32_t>& prompt,
                                           const model::Tokenizer& tokenizer);

/// The turns of items that are asked right after the first `context` tokens of the first item's prompt, and
/// leave no trace for each other. Throws Error(input) as following_turns() does for answers; empty when an
/// item does not begin with these tokens.
std::vector<sim::LoopTurn> separate_turns(std::span<const capture::WorkloadItem> items,
                                          const std::vector<std::int32_t>& prompt, std::size_t context,
                                          const model::Tokenizer& tokenizer);

/// An item for every answer on a path of a trace's segment tree, turn by turn; one for a path without an
/// answer. The prompt of a turn holds the turns before it. Ids are NAME/TURN; that of a
/// single turn is the item that was captured, or NAME. Throws Error(input) when
/// tokens are withheld or are none of the model's vocabulary.
std::vector<capture::WorkloadItem> recorded_items(const trace::Sequence& sequence, const std::string& name,
                                                  const model::Tokenizer& tokenizer,
                                                  std::uint64_t vocabulary);

}  // namespace kvsim::analysis
