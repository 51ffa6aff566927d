#pragma once
/// Prompts through a model's chat template.
#include <string>
#include <vector>

#include "traces/capture/workload_item.hpp"
#include "traces/model/chat_template.hpp"

namespace kvsim::capture {

/// Makes an item's prompt the message of a user, and its end, item.answer_prefix, the begin of the answer.
/// Its parts are where they were in the text; what the template writes is markup. A prompt without parts that
/// is a JSON array of messages, {"role": ..., "content": ...}, is that conversation: the last of several
/// messages is the question, the others are the context. An assistant answers in sentences and, where the
/// prompt does not begin the answer, without a space in front: expected answers lose theirs and may stand
/// anywhere. Throws Error(input).
void put_into_chat(WorkloadItem& item, const model::ChatTemplate& chat);

/// Puts the items into the model's chat template if `asked`; else adds a note where the model has one that
/// their prompts did not go through, and where it is another. Throws Error(usage) for an item that went
/// through one already.
void apply_chat(std::vector<WorkloadItem>& items, const std::string& model, bool asked,
                std::vector<std::string>& notes);

/// What to tell of texts that begin with the token that the tokenizer puts before every text; empty: nothing.
std::string doubled_begin_note(const std::vector<WorkloadItem>& items, const model::Tokenizer& tokenizer);

}  // namespace kvsim::capture
