#include "traces/workloads/spanned_text.hpp"

#include <algorithm>
#include <tuple>

namespace kvsim::workload {

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
