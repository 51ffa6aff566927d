#pragma once
/// Reads one prompt from a workload file and gives its tokens the flags of its parts.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/field_names.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::capture {

/// The fields of a workload::PromptItem that capture uses.
struct WorkloadItem {
  std::string id;
  std::string kind{};        ///< empty if the line has none
  std::uint64_t tokens = 0;  ///< number of tokens counted when the item was built; 0: not counted
  std::string prompt{};
  bool messages = false;  ///< `prompt` is a JSON list of messages, which only a chat template makes a text
  std::string chat{};     ///< SHA-256 of the chat template that made `prompt`; empty: none did
  /// Bytes at the end of `prompt` that begin the answer; through a chat template they follow its opening.
  std::uint64_t answer_prefix = 0;
  std::vector<workload::RoleSpan> spans{};
  std::vector<workload::ByteSpan> documents{};  ///< ascending, none within another
  std::string before{};                         ///< `prompt` before it was edited; empty: not known
  workload::Expect expect = workload::Expect::nothing;
  std::vector<std::string> answers{};
  std::string context_id{};  ///< items with the same one share their context; empty: not known
  std::uint64_t turn = 0;    ///< number of the question about that context
  // Of a recorded run, which is known by its tokens; else empty.
  std::vector<std::int32_t> ids{};           ///< of the prompt
  std::vector<std::int32_t> answer_ids{};    ///< of the only answer
  std::vector<std::uint32_t> token_flags{};  ///< of its parts, one per id; empty: the run does not know them
};

/// The tokens of the item's prompt, and the flags of its parts; no flags where no part is known. Throws as
/// part_flags() does.
std::vector<std::int32_t> prompt_ids(const WorkloadItem& item, const model::Tokenizer& tokenizer);
/// The tokens of a text that begins with the item's prompt.
std::vector<std::int32_t> text_ids(const WorkloadItem& item, std::string_view text,
                                   const model::Tokenizer& tokenizer);
/// How many of a prompt's tokens the tokenizer puts before every text: 1 or 0.
std::uint64_t begin_tokens(const std::vector<std::int32_t>& ids, const model::Tokenizer& tokenizer);
/// The tokens of the item's prompt before it was edited; none where that is not known.
std::vector<std::int32_t> earlier_ids(const WorkloadItem& item, const model::Tokenizer& tokenizer);
std::vector<std::uint32_t> prompt_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                        const model::Tokenizer& tokenizer);

/// The tokens of the item's documents, [begin, end): those whose first byte lies in one. Throws as
/// part_flags() does.
std::vector<workload::ByteSpan> document_tokens(const WorkloadItem& item,
                                                const std::vector<std::int32_t>& ids,
                                                const model::Tokenizer& tokenizer);

constexpr std::uint64_t kMaxWorkloadBytes = 1ULL << 30;

/// Other names of a line's fields, of "prompt=instruction,answers=gold". Only these and the id count then.
/// Throws as parse_field_names() does.
FieldNames parse_line_fields(const std::string& text);

/// Whether the text of a file that may hold a prompt or a workload is a workload: its name ends in .jsonl, or
/// its first line has a prompt and an answer (prompt_line.hpp).
bool is_workload(std::string_view text, const std::string& path);

/// Every item of a JSON Lines file, a JSON array or, by its name, a csv file, in order (prompt_line.hpp).
/// Throws Error(input) naming file and line when a line holds no prompt, two items have the same id, or there
/// is none.
std::vector<WorkloadItem> parse_workload(std::string_view text, const std::string& path,
                                         const FieldNames& fields = {});

/// The item with the given `id` in a JSON Lines file; if `id` is empty, the only item. Throws Error(input)
/// naming file and line when a line holds no prompt or two items have the same id, Error(usage) when there is
/// no such item.
WorkloadItem parse_workload_item(std::string_view text, const std::string& path, const std::string& id,
                                 const FieldNames& fields = {});
WorkloadItem read_workload_item(const std::string& path, const std::string& id);

/// The bytes of a token of a prompt, and whether it is special: the tokenizer may add such tokens to the
/// text.
struct SpelledToken {
  std::string bytes{};
  bool special = false;
};

/// The TokenFlag bits question, context and evidence of each token: the flags of every span that it shares a
/// byte with. Throws Error(input) when the tokens do not spell the prompt.
std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<SpelledToken>& tokens);
std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                      const model::Tokenizer& tokenizer);

}  // namespace kvsim::capture
