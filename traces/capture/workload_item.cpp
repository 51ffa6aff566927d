#include "traces/capture/workload_item.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "sim/base/csv_records.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "traces/capture/prompt_line.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxItemValues = 20'000'000;

/// Only the fields that are named, under kvsim's names, and the id where it is not named.
json::object renamed(const JsonObject& line, const FieldNames& fields) {
  json::object out;
  for (const char* id : kIdFields)
    if (line.has(id)) out[id] = line.at(id);
  for (const auto& [ours, theirs] : fields) {
    if (!line.has(theirs)) {
      std::vector<std::string> known;
      for (const auto& member : line.raw()) known.emplace_back(member.key());
      input_error("has no field " + in_quotes(theirs) + " for " + ours, line.where(),
                  suggestion(theirs, known));
    }
    out[ours] = line.at(theirs);
  }
  return out;
}

/// Calls visit(document, where, number) for each entry of the text of a file: a row of a csv file, whose
/// first row has the names of the fields, an element of a JSON array, or a line of JSON Lines.
template <class Visit>
void for_each_entry(std::string_view text, const std::string& path, Visit visit) {
  if (path.ends_with(".csv")) {
    CsvRecords records(text, path);
    const std::vector<std::string> names = records.done() ? std::vector<std::string>{} : records.record();
    for (std::uint64_t number = 1; !records.done(); ++number) {
      const std::vector<std::string> fields = records.record();
      const std::string where = path + " line " + std::to_string(records.line());
      if (fields.size() == 1 && fields.front().empty()) continue;
      if (fields.size() != names.size())
        input_error("has " + std::to_string(fields.size()) + " fields, and the first line names " +
                        std::to_string(names.size()),
                    where);
      json::object entry;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (!fields[i].empty()) entry[names[i]] = fields[i];
      visit(json::value(std::move(entry)), where, number);
    }
    return;
  }
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '[') {
    const json::value all = parse_strict_json(text, path, kMaxItemValues);
    for (std::uint64_t number = 1; const json::value& entry : all.get_array()) {
      visit(entry, path + " entry " + std::to_string(number), number);
      ++number;
    }
    return;
  }
  std::string_view rest = text;
  for (std::uint64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = path + " line " + std::to_string(number);
    visit(parse_strict_json(line, where, kMaxItemValues), where, number);
  }
}

/// Calls visit(item) for each item of the text of a file.
template <class Visit>
void for_each_item(std::string_view text, const std::string& path, const FieldNames& fields, Visit visit) {
  std::unordered_set<std::string> seen;
  for_each_entry(text, path, [&](json::value document, const std::string& where, std::uint64_t number) {
    if (!fields.empty()) document = renamed(JsonObject(document, where), fields);
    for (WorkloadItem& item : items_of_line(JsonObject(document, where), number)) {
      if (!seen.insert(item.id).second) input_error("a second prompt is called " + item.id, where);
      visit(std::move(item));
    }
  });
}

[[noreturn]] void no_such_item(const std::string& path, const std::string& id,
                               const std::vector<std::string>& known) {
  if (id.empty()) {
    usage_error(path + " holds " + std::to_string(known.size()) + " prompts", "--item",
                known.empty() ? "" : "Name one of them, such as " + known.front() + ".");
  }
  usage_error("no prompt of " + path + " is called " + in_quotes(id), "--item", suggestion(id, known));
}

}  // namespace

FieldNames parse_line_fields(const std::string& text) {
  return parse_field_names(text,
                           {"prompt", "answers", "context", "question", "messages", "id", "kind", "expect"});
}

bool is_workload(std::string_view text, const std::string& path) {
  if (path.ends_with(".jsonl")) return true;
  const std::string_view line = first_line(text);
  if (!line.starts_with('{')) return false;
  try {
    const json::value document = parse_strict_json(line, path, kMaxItemValues);
    return has_prompt_and_answer(JsonObject(document, path));
  } catch (const Error&) {
    return false;  // no JSON: a text that begins with a brace
  }
}

std::vector<WorkloadItem> parse_workload(std::string_view text, const std::string& path,
                                         const FieldNames& fields) {
  std::vector<WorkloadItem> items;
  for_each_item(text, path, fields, [&](WorkloadItem item) { items.push_back(std::move(item)); });
  if (items.empty()) input_error("holds no prompts", path);
  return items;
}

WorkloadItem parse_workload_item(std::string_view text, const std::string& path, const std::string& id,
                                 const FieldNames& fields) {
  std::optional<WorkloadItem> found;
  std::vector<std::string> known;
  for_each_item(text, path, fields, [&](WorkloadItem item) {
    known.push_back(item.id);
    if (id.empty() || item.id == id) found = std::move(item);
  });
  if (!found || (id.empty() && known.size() != 1)) no_such_item(path, id, known);
  return *found;
}

WorkloadItem read_workload_item(const std::string& path, const std::string& id) {
  return parse_workload_item(read_file(path, kMaxWorkloadBytes), path, id);
}

namespace {

/// Where each token lies in the prompt; nowhere, of what the tokenizer adds.
std::vector<workload::ByteSpan> places_of(const WorkloadItem& item, const std::vector<SpelledToken>& tokens) {
  std::vector<workload::ByteSpan> places;
  std::uint64_t at = 0;
  const std::string_view prompt = item.prompt;
  for (const SpelledToken& token : tokens) {
    const bool there = prompt.substr(at).starts_with(token.bytes);
    if (!there && !token.special) break;
    places.push_back({at, at + (there ? token.bytes.size() : 0)});
    at = places.back().end;
  }
  if (at != prompt.size()) {
    input_error("the tokenizer changes the text, so that its parts cannot be found among the tokens (byte " +
                    std::to_string(at) + ")",
                item.id, "Capture its prompt as plain text with --prompt.");
  }
  places.resize(tokens.size(), {at, at});
  return places;
}

std::vector<SpelledToken> spelled_tokens(const std::vector<std::int32_t>& ids,
                                         const model::Tokenizer& tokenizer) {
  const std::vector<std::string> spelled = tokenizer.spell(ids);
  std::vector<SpelledToken> tokens;
  for (std::size_t t = 0; t < ids.size(); ++t) tokens.push_back({spelled[t], tokenizer.is_special(ids[t])});
  return tokens;
}

}  // namespace

std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<SpelledToken>& tokens) {
  std::vector<std::uint32_t> of_byte(item.prompt.size(), 0);
  for (const workload::RoleSpan& span : item.spans)
    for (std::uint64_t at = span.begin; at < span.end; ++at) of_byte[at] |= workload::role_flag(span.role);

  std::vector<std::uint32_t> flags;
  for (const workload::ByteSpan& place : places_of(item, tokens)) {
    flags.push_back(0);
    for (std::uint64_t at = place.begin; at < place.end; ++at) flags.back() |= of_byte[at];
  }
  return flags;
}

std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                      const model::Tokenizer& tokenizer) {
  return part_flags(item, spelled_tokens(ids, tokenizer));
}

std::vector<workload::ByteSpan> document_tokens(const WorkloadItem& item,
                                                const std::vector<std::int32_t>& ids,
                                                const model::Tokenizer& tokenizer) {
  const std::vector<workload::ByteSpan> places = places_of(item, spelled_tokens(ids, tokenizer));
  const auto first_from = [&](std::uint64_t byte) {
    return static_cast<std::uint64_t>(std::ranges::lower_bound(places, byte, {}, &workload::ByteSpan::begin) -
                                      places.begin());
  };
  std::vector<workload::ByteSpan> out;
  for (const workload::ByteSpan& document : item.documents)
    out.push_back({first_from(document.begin), first_from(document.end)});
  return out;
}

std::vector<std::int32_t> prompt_ids(const WorkloadItem& item, const model::Tokenizer& tokenizer) {
  return item.ids.empty() ? text_ids(item, item.prompt, tokenizer) : item.ids;
}

std::vector<std::int32_t> text_ids(const WorkloadItem& item, std::string_view text,
                                   const model::Tokenizer& tokenizer) {
  return tokenizer.encode(text, item.chat.empty());
}

std::uint64_t begin_tokens(const std::vector<std::int32_t>& ids, const model::Tokenizer& tokenizer) {
  const std::vector<std::int32_t> frame = tokenizer.encode("");
  return !frame.empty() && !ids.empty() && frame[0] == ids[0] ? 1 : 0;
}

std::vector<std::int32_t> earlier_ids(const WorkloadItem& item, const model::Tokenizer& tokenizer) {
  return item.before.empty() ? std::vector<std::int32_t>{} : text_ids(item, item.before, tokenizer);
}

std::vector<std::uint32_t> prompt_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                        const model::Tokenizer& tokenizer) {
  if (!item.ids.empty()) return item.token_flags;
  return item.spans.empty() ? std::vector<std::uint32_t>{} : part_flags(item, ids, tokenizer);
}

}  // namespace kvsim::capture
