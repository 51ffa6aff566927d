#include "traces/capture/chat_prompt.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;
using workload::Expect;
using workload::Role;
using workload::RoleSpan;

constexpr std::size_t kMaxChatValues = 1'000'000;

/// Adds what lies between places, and sorts by begin, then role.
void add_markup(std::vector<RoleSpan>& spans, const std::vector<model::ChatText::Place>& places,
                std::uint64_t end) {
  std::uint64_t at = 0;
  for (const model::ChatText::Place& place : places) {
    if (place.begin > at) spans.push_back({at, place.begin, Role::markup});
    at = place.end;
  }
  if (end > at) spans.push_back({at, end, Role::markup});
  std::sort(spans.begin(), spans.end(), [](const RoleSpan& a, const RoleSpan& b) {
    return std::tie(a.begin, a.role) < std::tie(b.begin, b.role);
  });
}

/// Spans of a text as spans of the place where it stands now.
template <class Span>
std::vector<Span> moved(const std::vector<Span>& spans, const model::ChatText::Place& place) {
  std::vector<Span> out;
  const std::uint64_t first = place.cut, last = place.cut + (place.end - place.begin);
  for (const Span& span : spans) {
    const std::uint64_t begin = std::clamp(span.begin, first, last), end = std::clamp(span.end, first, last);
    if (begin == end) continue;
    Span& there = out.emplace_back(span);
    there.begin = begin - first + place.begin;
    there.end = end - first + place.begin;
  }
  return out;
}

/// What a message says: a text, or OpenAI's list of parts that are texts.
std::string content_of(const JsonObject& message) {
  const json::value* content = message.find("content");
  const json::array* parts = content == nullptr ? nullptr : content->if_array();
  if (parts == nullptr) return message.text("content");
  std::string text;
  for (const json::value& value : *parts) {
    const JsonObject part(value, message.path("content"));
    if (const std::string type = part.text("type"); type != "text")
      input_error("has a part of type " + in_quotes(type) + "; kvsim reads texts", part.where());
    text += part.text("text");
  }
  return text;
}

/// The messages of a text that is a JSON array of them; none for another text.
std::vector<model::ChatMessage> messages_of(const std::string& text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '[') return {};
  std::optional<json::value> document;
  try {
    document = parse_strict_json(text, where, kMaxChatValues);
  } catch (const Error&) {
    return {};  // a text that begins with a bracket
  }
  const json::array& list = document->as_array();
  if (list.empty() || !list[0].is_object() || !list[0].get_object().contains("role")) return {};
  std::vector<model::ChatMessage> messages;
  for (const json::value& value : list) {
    const JsonObject message(value, where + " message " + std::to_string(messages.size()));
    messages.push_back({message.text("role"), content_of(message)});
  }
  return messages;
}

}  // namespace

void put_into_chat(WorkloadItem& item, const model::ChatTemplate& chat) {
  if (!item.before.empty()) {
    WorkloadItem earlier{.id = item.id, .prompt = std::move(item.before)};
    earlier.answer_prefix = std::min<std::uint64_t>(item.answer_prefix, earlier.prompt.size());
    put_into_chat(earlier, chat);
    item.before = std::move(earlier.prompt);
  }
  const std::uint64_t asked = item.prompt.size() - item.answer_prefix;
  std::vector<model::ChatMessage> messages;
  if (item.spans.empty()) messages = messages_of(item.prompt, item.id);
  const bool single = messages.empty();
  if (single) messages = {{"user", item.prompt.substr(0, asked)}};
  model::ChatText made = chat.render(messages, item.id);

  std::vector<RoleSpan> spans = moved(item.spans, made.places.back());
  for (std::size_t i = 0; messages.size() > 1 && i < messages.size(); ++i)
    if (const model::ChatText::Place& place = made.places[i]; place.begin < place.end)
      spans.push_back({place.begin, place.end, i + 1 == messages.size() ? Role::question : Role::context});
  std::sort(made.places.begin(), made.places.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  add_markup(spans, made.places, made.text.size());
  for (const RoleSpan& span : item.spans)
    if (span.end > asked)
      spans.push_back({made.text.size(), made.text.size() + item.answer_prefix, span.role});
  item.prompt = single ? made.text + item.prompt.substr(asked) : made.text;
  item.spans = std::move(spans);
  item.documents = moved(item.documents, made.places.back());
  item.messages = false;
  item.chat = chat.sha256();
  if (item.answer_prefix > 0) return;
  for (std::string& answer : item.answers) answer.erase(0, answer.find_first_not_of(' '));
  if (item.expect == Expect::first || item.expect == Expect::any) item.expect = Expect::holds_any;
  if (item.expect == Expect::all) item.expect = Expect::holds_all;
}

void apply_chat(std::vector<WorkloadItem>& items, const std::string& model, bool asked,
                std::vector<std::string>& notes) {
  if (asked) {
    const model::ChatTemplate chat = model::load_chat_template(model);
    for (WorkloadItem& item : items) {
      if (!item.chat.empty())
        usage_error(in_quotes(item.id) + " went through a chat template when it was made", "--chat",
                    "Leave --chat out.");
      put_into_chat(item, chat);
    }
    if (!chat.note().empty()) notes.push_back(chat.note());
    return;
  }
  const auto unread = std::ranges::find_if(items, &WorkloadItem::messages);
  if (unread != items.end())
    usage_error(
        in_quotes(unread->id) + " is a list of messages, which the model's chat template makes a text",
        "--chat", "Add --chat.");
  const auto raw = [](const WorkloadItem& item) { return item.chat.empty() && item.ids.empty(); };
  if (std::any_of(items.begin(), items.end(), raw))
    if (std::string note = model::chat_template_note(model); !note.empty()) notes.push_back(std::move(note));
  const auto foreign = std::find_if(items.begin(), items.end(),
                                    [known = model::chat_template_digest(model)](const WorkloadItem& item) {
                                      return !item.chat.empty() && item.chat != known;
                                    });
  if (foreign != items.end())
    notes.push_back(in_quotes(foreign->id) + " went through a chat template that is not the one of " + model);
}

std::string doubled_begin_note(const std::vector<WorkloadItem>& items, const model::Tokenizer& tokenizer) {
  const std::vector<std::int32_t> frame = tokenizer.encode("");
  if (frame.empty() || tokenizer.bytes(frame[0]).empty()) return {};
  const std::string& begin = tokenizer.bytes(frame[0]);
  const auto doubled = std::find_if(items.begin(), items.end(), [&](const WorkloadItem& item) {
    return item.chat.empty() && item.ids.empty() && item.prompt.starts_with(begin);
  });
  if (doubled == items.end()) return {};
  return "the text of " + in_quotes(doubled->id) + " begins with " + begin +
         ", which the tokenizer puts before every text: the model reads it twice. Leave it out of the text.";
}

}  // namespace kvsim::capture
