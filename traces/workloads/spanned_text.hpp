#pragma once
/// Text composed of parts, each with its role.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/workloads/prompt_item.hpp"

namespace kvsim::workload {

class SpannedText {
 public:
  /// Appends a part. Evidence also counts as context; adjacent parts of the same role become one span.
  SpannedText& add(std::string_view text, Role role);

  /// Appends the words with which the answer begins, as part of the question; nothing follows them. A chat
  /// template puts them into the model's turn.
  SpannedText& begin_answer(std::string_view prefix);
  /// The byte at which they begin; the size of the text where there are none.
  std::uint64_t answer_begin() const { return answer_begin_ ? *answer_begin_ : text_.size(); }

  /// What was added since byte `begin` is a document.
  SpannedText& end_document(std::uint64_t begin);
  const std::vector<ByteSpan>& documents() const { return documents_; }

  /// This text behind a part.
  SpannedText behind(std::string_view text, Role role) const;

  const std::string& text() const { return text_; }
  /// The spans, sorted by begin, then role.
  std::vector<RoleSpan> spans() const;

 private:
  void extend(std::vector<RoleSpan>& spans, std::uint64_t begin, Role role);

  std::string text_;
  std::vector<RoleSpan> parts_, evidence_;
  std::vector<ByteSpan> documents_;
  std::optional<std::uint64_t> answer_begin_;
};

}  // namespace kvsim::workload
