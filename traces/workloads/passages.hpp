#pragma once
/// The passages from which contexts are made.
#include <string>
#include <vector>

namespace kvsim::workload {

struct Passage {
  std::string name;
  std::string text;
};

/// The files of passages/, compiled in: about 97 kB of technical English with markup and code. None is empty.
const std::vector<Passage>& builtin_passages();

/// Questions with short answers about the built-in passages, written by hand.
struct PassageQuestion {
  std::string passage;  ///< its name
  std::string clue;     ///< words of the paragraph that holds the answer, which occur in it alone
  std::string question;
  std::vector<std::string> answers;  ///< any of them will do
};

const std::vector<PassageQuestion>& passage_questions();

/// The paragraph of the built-in passages that holds the answer, without the white space around it.
std::string paragraph_of(const PassageQuestion& question);

}  // namespace kvsim::workload
