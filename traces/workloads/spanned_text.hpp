#pragma once
/// Text composed of parts, each with its role.
#include <string>
#include <string_view>
#include <vector>

#include "traces/workloads/prompt_item.hpp"

namespace kvsim::workload {

class SpannedText {
 public:
  /// Appends a part. Evidence also counts as context; adjacent parts of the same role become one span.
  SpannedText& add(std::string_view text, Role role);

  const std::string& text() const { return text_; }
  /// The spans, sorted by begin, then role.
  std::vector<RoleSpan> spans() const;

 private:
  void extend(std::vector<RoleSpan>& spans, std::uint64_t begin, Role role);

  std::string text_;
  std::vector<RoleSpan> parts_, evidence_;
};

}  // namespace kvsim::workload
