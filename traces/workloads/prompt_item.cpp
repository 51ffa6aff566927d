#include "traces/workloads/prompt_item.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <tuple>

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"
#include "traces/format/header.hpp"

namespace kvsim::workload {

namespace json = boost::json;

namespace {

constexpr const char* kRoles[] = {"question", "context", "evidence", "markup"};
constexpr const char* kExpectations[] = {"nothing", "first", "any", "all", "holds-any", "holds-all"};

}  // namespace

const char* role_name(Role role) {
  return name_in(kRoles, role);
}

Role role_of_name(const std::string& name, const std::string& where) {
  if (const auto role = named_in<Role>(kRoles, name)) return *role;
  input_error("unknown role", where, "Expected question, context, evidence or markup.");
}

std::uint32_t role_flag(Role role) {
  constexpr std::uint32_t kFlags[] = {trace::kFlagQuestion, trace::kFlagContext, trace::kFlagEvidence,
                                      kFlagMarkup};
  return kFlags[static_cast<std::size_t>(role)];
}

const char* expect_name(Expect expect) {
  return name_in(kExpectations, expect);
}

Expect expect_of_name(const std::string& name, const std::string& where) {
  if (const auto expect = named_in<Expect>(kExpectations, name)) return *expect;
  input_error("unknown expectation", where, "Expected nothing, first, any, all, holds-any or holds-all.");
}

namespace {

std::string folded(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

struct Holds {
  std::string text;  ///< folded
  bool operator()(const std::string& answer) const {
    static constexpr const char* kSpace = " \t\r\n";
    const std::size_t begin = answer.find_first_not_of(kSpace);
    if (begin == std::string::npos) return false;
    const std::size_t end = answer.find_last_not_of(kSpace) + 1;
    return text.find(folded(answer.substr(begin, end - begin))) != std::string::npos;
  }
};

}  // namespace

bool is_right(const std::string& text, Expect expect, const std::vector<std::string>& answers) {
  const auto begins = [&](const std::string& answer) { return text.starts_with(answer); };
  const auto holds = [&](const std::string& answer) { return text.find(answer) != std::string::npos; };
  switch (expect) {
    case Expect::nothing:
      return false;
    case Expect::first:
      return !answers.empty() && begins(answers.front());
    case Expect::any:
      return std::any_of(answers.begin(), answers.end(), begins);
    case Expect::all:
      return !answers.empty() && std::all_of(answers.begin(), answers.end(), holds);
    case Expect::holds_any:
      return std::any_of(answers.begin(), answers.end(), Holds{folded(text)});
    case Expect::holds_all:
      return !answers.empty() && std::all_of(answers.begin(), answers.end(), Holds{folded(text)});
  }
  bug("an expectation without a rule");
}

std::string json_line(const PromptItem& item) {
  json::array spans;
  for (const RoleSpan& span : item.spans)
    spans.push_back(json::object{{"begin", span.begin}, {"end", span.end}, {"role", role_name(span.role)}});
  json::object line{{"id", item.id},
                    {"kind", item.kind},
                    {"seed", item.seed},
                    {"context_tokens", item.context_tokens},
                    {"tokens", item.tokens},
                    {"answer_tokens", item.answer_tokens},
                    {"context_id", item.context_id},
                    {"turn", item.turn},
                    {"turns", item.turns},
                    {"prompt", item.prompt},
                    {"spans", std::move(spans)},
                    {"expect", expect_name(item.expect)},
                    {"answers", json::array(item.answers.begin(), item.answers.end())},
                    {"answer_prefix", item.answer_prefix}};
  if (!item.chat.empty()) line["chat"] = item.chat;
  if (!item.documents.empty()) {
    json::array documents;
    for (const ByteSpan& document : item.documents)
      documents.push_back(json::array{document.begin, document.end});
    line["documents"] = std::move(documents);
  }
  return json::serialize(line);
}

SpannedText& SpannedText::add(std::string_view text, Role role) {
  if (text.empty()) return *this;
  const std::uint64_t begin = text_.size();
  text_ += text;
  if (role == Role::evidence) extend(evidence_, begin, role);
  extend(parts_, begin, role == Role::question ? Role::question : Role::context);
  return *this;
}

SpannedText& SpannedText::begin_answer(std::string_view prefix) {
  answer_begin_ = text_.size();
  return add(prefix, Role::question);
}

SpannedText& SpannedText::end_document(std::uint64_t begin) {
  documents_.push_back({begin, text_.size()});
  return *this;
}

SpannedText SpannedText::behind(std::string_view text, Role role) const {
  SpannedText out;
  out.add(text, role);
  const std::uint64_t shift = out.text_.size();
  out.text_ += text_;
  const auto append = [&](std::vector<RoleSpan>& all, RoleSpan span) {
    span.begin += shift;
    span.end += shift;
    if (!all.empty() && all.back().end == span.begin && all.back().role == span.role)
      all.back().end = span.end;
    else
      all.push_back(span);
  };
  for (const RoleSpan& part : parts_) append(out.parts_, part);
  for (const RoleSpan& part : evidence_) append(out.evidence_, part);
  for (const ByteSpan& document : documents_)
    out.documents_.push_back({document.begin + shift, document.end + shift});
  if (answer_begin_) out.answer_begin_ = *answer_begin_ + shift;
  return out;
}

void SpannedText::extend(std::vector<RoleSpan>& spans, std::uint64_t begin, Role role) {
  if (spans.empty() || spans.back().end != begin || spans.back().role != role)
    spans.push_back({begin, begin, role});
  spans.back().end = text_.size();
}

std::vector<RoleSpan> SpannedText::spans() const {
  std::vector<RoleSpan> all = parts_;
  all.insert(all.end(), evidence_.begin(), evidence_.end());
  std::sort(all.begin(), all.end(), [](const RoleSpan& a, const RoleSpan& b) {
    return std::tie(a.begin, a.role) < std::tie(b.begin, b.role);
  });
  return all;
}

}  // namespace kvsim::workload
