#include "traces/capture/workload_item.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "traces/capture/benchmark_line.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxItemValues = 20'000'000;
constexpr std::uint64_t kMaxTokens = 1ULL << 32;

std::vector<workload::RoleSpan> parse_spans(const JsonObject& line, std::uint64_t bytes) {
  std::vector<workload::RoleSpan> spans;
  for (const json::value& value : line.array("spans")) {
    const JsonObject object(value, line.path("spans") + "[" + std::to_string(spans.size()) + "]");
    const std::uint64_t begin = object.integer("begin", 0, bytes);
    const std::uint64_t end = object.integer("end", begin, bytes);
    if (end == begin) input_error("a part without text", object.where(), "Leave it out.");
    spans.push_back({begin, end, workload::role_of_name(object.text("role"), object.where())});
  }
  return spans;
}

/// Reads an id or kind and checks that it is printable, because messages and results contain it verbatim.
std::string parse_name(const JsonObject& line, const char* key) {
  const std::string name = line.text(key);
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (name.empty() || !printable)
    input_error("expected printable ASCII characters without spaces", line.path(key));
  return name;
}

WorkloadItem parse_item(const JsonObject& line) {
  WorkloadItem item;
  item.id = parse_name(line, "id");
  if (line.has("kind")) item.kind = parse_name(line, "kind");
  item.tokens = line.integer("tokens", 0, kMaxTokens);
  item.prompt = line.text("prompt");
  item.spans = parse_spans(line, item.prompt.size());
  for (const json::value& answer : line.array("answers")) {
    if (!answer.is_string()) input_error("expected strings", line.path("answers"));
    item.answers.emplace_back(answer.get_string());
  }
  if (line.has("expect"))
    item.expect = workload::expect_of_name(line.text("expect"), line.path("expect"));
  else if (!item.answers.empty())
    item.expect = item.answers.size() == 1 ? workload::Expect::first : workload::Expect::any;
  item.chat = line.text_or("chat", "");
  // What went through a template has its prefix where it belongs.
  if (item.chat.empty() && line.has("answer_prefix"))
    item.answer_prefix = line.integer("answer_prefix", 0, item.prompt.size());
  if (line.has("context_id")) item.context_id = parse_name(line, "context_id");
  if (line.has("turn")) item.turn = line.integer("turn", 0, kMaxTokens);
  return item;
}

std::string id_of(const JsonObject& line, LineFormat format) {
  if (format == LineFormat::unknown) refuse_line(line);
  return format == LineFormat::kvsim ? parse_name(line, "id") : benchmark_id(line);
}

WorkloadItem item_of(const JsonObject& line, LineFormat format) {
  if (format == LineFormat::ruler) return ruler_item(line);
  return format == LineFormat::longbench ? longbench_item(line) : parse_item(line);
}

/// Calls visit(line, format, id) for each item of the text of a file.
template <class Visit>
void for_each_line(std::string_view text, const std::string& path, Visit visit) {
  std::unordered_set<std::string> seen;
  std::string_view rest = text;
  for (std::uint64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = path + " line " + std::to_string(number);
    const json::value document = parse_strict_json(line, where, kMaxItemValues);
    const JsonObject object(document, where);
    const LineFormat format = line_format(object);
    const std::string id = id_of(object, format);
    if (!seen.insert(id).second) input_error("a second prompt is called " + id, where);
    visit(object, format, id);
  }
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

bool is_workload(std::string_view text, const std::string& path) {
  if (path.ends_with(".jsonl")) return true;
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with('{')) return false;
  try {
    const json::value document = parse_strict_json(line, path, kMaxItemValues);
    return line_format(JsonObject(document, path)) != LineFormat::unknown;
  } catch (const Error&) {
    return false;  // no JSON: a text that begins with a brace
  }
}

std::vector<WorkloadItem> parse_workload(std::string_view text, const std::string& path) {
  std::vector<WorkloadItem> items;
  for_each_line(text, path, [&](const JsonObject& line, LineFormat format, const std::string&) {
    items.push_back(item_of(line, format));
  });
  if (items.empty()) input_error("holds no prompts", path);
  return items;
}

WorkloadItem parse_workload_item(std::string_view text, const std::string& path, const std::string& id) {
  std::optional<WorkloadItem> found;
  std::vector<std::string> known;
  for_each_line(text, path, [&](const JsonObject& line, LineFormat format, const std::string& name) {
    known.push_back(name);
    if (id.empty() || name == id) found = item_of(line, format);
  });
  if (!found || (id.empty() && known.size() != 1)) no_such_item(path, id, known);
  return *found;
}

std::vector<WorkloadItem> read_workload(const std::string& path) {
  return parse_workload(read_file(path, kMaxWorkloadBytes), path);
}

WorkloadItem read_workload_item(const std::string& path, const std::string& id) {
  return parse_workload_item(read_file(path, kMaxWorkloadBytes), path, id);
}

std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<SpelledToken>& tokens) {
  std::vector<std::uint32_t> of_byte(item.prompt.size(), 0);
  for (const workload::RoleSpan& span : item.spans)
    for (std::uint64_t at = span.begin; at < span.end; ++at) of_byte[at] |= workload::role_flag(span.role);

  std::vector<std::uint32_t> flags(tokens.size(), 0);
  std::uint64_t at = 0;
  const std::string_view prompt = item.prompt;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::string& bytes = tokens[t].bytes;
    if (!prompt.substr(at).starts_with(bytes)) {
      if (tokens[t].special) continue;  // the tokenizer adds it; it is not part of the text
      break;
    }
    for (const std::uint64_t end = at + bytes.size(); at < end; ++at) flags[t] |= of_byte[at];
  }
  if (at != prompt.size()) {
    input_error("the tokenizer changes the text, so that its parts cannot be found among the tokens (byte " +
                    std::to_string(at) + ")",
                item.id, "Capture its prompt as plain text with --prompt.");
  }
  return flags;
}

std::vector<std::uint32_t> part_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                      const model::Tokenizer& tokenizer) {
  const std::vector<std::string> spelled = tokenizer.spell(ids);
  std::vector<SpelledToken> tokens;
  for (std::size_t t = 0; t < ids.size(); ++t) tokens.push_back({spelled[t], tokenizer.is_special(ids[t])});
  return part_flags(item, tokens);
}

std::vector<std::int32_t> prompt_ids(const WorkloadItem& item, const model::Tokenizer& tokenizer) {
  return item.ids.empty() ? text_ids(item, item.prompt, tokenizer) : item.ids;
}

std::vector<std::int32_t> text_ids(const WorkloadItem& item, std::string_view text,
                                   const model::Tokenizer& tokenizer) {
  return tokenizer.encode(text, item.chat.empty());
}

std::vector<std::uint32_t> prompt_flags(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                        const model::Tokenizer& tokenizer) {
  if (!item.ids.empty()) return item.token_flags;
  return item.spans.empty() ? std::vector<std::uint32_t>{} : part_flags(item, ids, tokenizer);
}

}  // namespace kvsim::capture
