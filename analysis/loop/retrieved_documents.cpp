#include "analysis/loop/retrieved_documents.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "analysis/loop/words.hpp"
#include "sim/base/order.hpp"

namespace kvsim::analysis {

std::vector<std::size_t> retrieved_documents(const std::vector<std::string>& documents,
                                             const std::string& question, std::size_t n) {
  constexpr double kK1 = 1.2, kB = 0.75;
  std::vector<std::map<std::string, double>> counts(documents.size());
  std::vector<double> lengths(documents.size());
  std::map<std::string, double> held_by;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    for (const std::string& word : words_of(documents[i])) {
      ++counts[i][word];
      ++lengths[i];
    }
    for (const auto& [word, count] : counts[i]) ++held_by[word];
  }
  const auto all = static_cast<double>(documents.size());
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / all;
  const std::vector<std::string> asked = words_of(question);
  std::vector<double> scores(documents.size());
  for (const std::string& word : std::set<std::string>(asked.begin(), asked.end())) {
    const double of = held_by[word], rarity = std::log(1 + (all - of + 0.5) / (of + 0.5));
    for (std::size_t i = 0; i < documents.size(); ++i)
      if (const auto count = counts[i].find(word); count != counts[i].end())
        scores[i] +=
            rarity * count->second * (kK1 + 1) / (count->second + kK1 * (1 - kB + kB * lengths[i] / mean));
  }
  std::vector<std::size_t> order = largest_first(scores);
  order.resize(std::min(n, order.size()));
  std::ranges::sort(order);
  return order;
}

}  // namespace kvsim::analysis
