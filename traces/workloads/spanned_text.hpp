#pragma once
/// Text put together from parts, each with its role.
#include <string>
#include <string_view>
#include <vector>

#include "traces/workloads/prompt_item.hpp"

namespace kvsim::workload {

class SpannedText {
 public:
  /// Appends a part. Evidence is part of the context too; neighbours of one role become one span.
  SpannedText& add(std::string_view text, Role role);

  const std::string& text() const { return text_; }
  /// By begin, then role.
  std::vector<RoleSpan> spans() const;

 private:
  void extend(std::vector<RoleSpan>& spans, std::uint64_t begin, Role role);

  std::string text_;
  std::vector<RoleSpan> parts_, evidence_;
};

}  // namespace kvsim::workload
