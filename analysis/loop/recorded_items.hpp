#pragma once
/// The prompts and answers of a recorded run: turns of a chat, and questions of a tree about one document.
#include <cstdint>
#include <string>
#include <vector>

#include "traces/capture/workload_item.hpp"
#include "traces/format/sequence.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::analysis {

/// An item for every answer on a path of a trace's segment tree, turn by turn; one for a path without an
/// answer. The prompt of a turn holds the turns before it. Ids are NAME/TURN; that of a
/// single turn is the item that was captured, or NAME. Throws Error(input) when
/// tokens are withheld or are none of the model's vocabulary.
std::vector<capture::WorkloadItem> recorded_items(const trace::Sequence& sequence, const std::string& name,
                                                  const model::Tokenizer& tokenizer,
                                                  std::uint64_t vocabulary);

}  // namespace kvsim::analysis
