// The word count tasks ask for the most frequent words of a long list. Common words: some words are ten times
// as frequent as the others. Frequent words: frequencies fall as 1/rank^2 (after Hsieh et al., RULER, 2024).
#include <algorithm>

#include "traces/workloads/task.hpp"
#include "traces/workloads/word_lists.hpp"

namespace kvsim::workload {
namespace {

constexpr const char* kCountInstruction =
    "Below is a list of words. Some come up more often than the others.\n\n";
constexpr std::uint64_t kCommon = 10, kFrequent = 3;
constexpr std::uint64_t kLeastCommon = 32;  ///< size at which common words occur twice, others once
constexpr std::uint64_t kLeastFrequent =
    48;  ///< size at which the third rank occurs three times, the fourth once

/// The number of occurrences of each word in a list of `size` words.
using Counts = std::vector<std::uint64_t> (*)(std::uint64_t size, std::uint64_t words);

/// Adds one occurrence to each word from `first` on, in turn, until there are `size`.
void spread_rest(std::vector<std::uint64_t>& counts, std::uint64_t used, std::uint64_t size,
                 std::uint64_t first) {
  for (std::uint64_t word = first; used < size; ++used) {
    ++counts[word];
    if (++word == counts.size()) word = first;
  }
}

/// Gives a sixteenth of the list to each common word and the rest evenly to the others.
std::vector<std::uint64_t> common_counts(std::uint64_t size, std::uint64_t words) {
  std::vector<std::uint64_t> counts(words, 0);
  std::fill_n(counts.begin(), kCommon, size / 16);
  spread_rest(counts, kCommon * (size / 16), size, kCommon);
  return counts;
}

/// Gives rank r the share 6 / (pi r)^2, rounded down, and the rest evenly to the ranks that are not asked
/// for, rarest first.
std::vector<std::uint64_t> frequent_counts(std::uint64_t size, std::uint64_t words) {
  constexpr double kFirstShare = 0.6079271018540267;
  std::vector<std::uint64_t> counts(words, 0);
  std::uint64_t used = 0, present = 0;
  for (std::uint64_t rank = 1; rank <= words; ++rank) {
    const double share = kFirstShare / static_cast<double>(rank * rank);
    counts[rank - 1] = static_cast<std::uint64_t>(share * static_cast<double>(size));
    used += counts[rank - 1];
    if (counts[rank - 1] > 0) present = rank;
  }
  const std::uint64_t absent = std::min(words - present, size - used);
  std::fill_n(counts.begin() + static_cast<std::ptrdiff_t>(present), absent, 1);
  spread_rest(counts, used + absent, size, kFrequent);
  return counts;
}

Task count_words(const Draws& draws, std::uint64_t asked, std::uint64_t least, Counts counts,
                 const std::string& question) {
  const std::vector<std::string> words = draws.sample(all_words(), all_words().size(), "words");
  Answers answers{Expect::all, {}};
  for (std::uint64_t i = 0; i < asked; ++i) answers.texts.push_back(" " + words[i]);
  Task task;
  task.turns.push_back(std::move(answers));
  task.least = least;
  task.compose = [words, draws, asked, counts, question](std::uint64_t size, std::uint64_t) {
    std::vector<std::uint64_t> list;
    const std::vector<std::uint64_t> times = counts(size, words.size());
    for (std::uint64_t word = 0; word < words.size(); ++word) list.insert(list.end(), times[word], word);
    SpannedText prompt;
    prompt.add(kCountInstruction, Role::question);
    for (const std::uint64_t place : draws.order(size, "list")) {
      const std::uint64_t word = list[place];
      prompt.add(" " + words[word], word < asked ? Role::evidence : Role::context);
    }
    prompt.add("\n\n", Role::question).begin_answer(question);
    return prompt;
  };
  return task;
}

}  // namespace

Task common_words_task(const TaskOptions&, const Draws& draws) {
  return count_words(draws, kCommon, kLeastCommon, common_counts, "The ten most common words are");
}

Task frequent_words_task(const TaskOptions&, const Draws& draws) {
  return count_words(draws, kFrequent, kLeastFrequent, frequent_counts, "The three most frequent words are");
}

}  // namespace kvsim::workload
