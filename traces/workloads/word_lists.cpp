#include "traces/workloads/word_lists.hpp"

#include "sim/base/split.hpp"

namespace kvsim::workload {

std::string_view words_text();  // words.txt, compiled in (CMakeLists.txt): keys, values

const std::vector<std::string>& key_words() {
  static const std::vector<std::string> kWords = text_words(words_text()).at(0);
  return kWords;
}

const std::vector<std::string>& value_words() {
  static const std::vector<std::string> kWords = text_words(words_text()).at(1);
  return kWords;
}

const std::vector<std::string>& all_words() {
  static const std::vector<std::string> kWords = [] {
    std::vector<std::string> words = key_words();
    words.insert(words.end(), value_words().begin(), value_words().end());
    return words;
  }();
  return kWords;
}

const std::vector<std::string>& variable_names() {
  static const std::vector<std::string> kNames{"b", "c", "d", "f", "g", "h", "k",
                                               "l", "m", "p", "r", "t", "w"};
  return kNames;
}

}  // namespace kvsim::workload
