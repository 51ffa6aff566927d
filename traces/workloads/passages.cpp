#include "traces/workloads/passages.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/split.hpp"

namespace kvsim::workload {

std::string_view passage_questions_text();  // passage_questions.txt, compiled in (CMakeLists.txt)

const std::vector<PassageQuestion>& passage_questions() {
  static const std::vector<PassageQuestion> kAll = [] {
    std::vector<PassageQuestion> out;
    for (const auto& of : text_rows(passage_questions_text()))
      out.push_back({of.at(0), of.at(1), of.at(2), {of.begin() + 3, of.end()}});
    return out;
  }();
  return kAll;
}

std::string paragraph_of(const PassageQuestion& question) {
  const std::vector<Passage>& all = builtin_passages();
  const auto passage = std::find_if(all.begin(), all.end(),
                                    [&](const Passage& each) { return each.name == question.passage; });
  if (passage == all.end()) bug("a question about no passage", question.passage);
  const std::string& text = passage->text;
  const std::size_t at = text.find(question.clue);
  if (at == std::string::npos) bug("a question without its paragraph", question.question);
  std::size_t begin = text.rfind("\n\n", at), end = text.find("\n\n", at);
  begin = text.find_first_not_of(" \n", begin == std::string::npos ? 0 : begin);
  return text.substr(begin, (end == std::string::npos ? text.size() : end) - begin);
}

}  // namespace kvsim::workload
