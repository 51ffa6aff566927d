#pragma once
/// Filler text of any length, and the insertion of facts between its sentences.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/workloads/draws.hpp"
#include "traces/workloads/passages.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::workload {

/// An endless text: it runs from a random paragraph of a random passage to that passage's end, then through
/// the other passages in random order, and repeats. A shorter piece is a prefix of every longer one.
class FillerText {
 public:
  /// `passages` must outlive this and hold more than white space.
  FillerText(const std::vector<Passage>& passages, const Draws& draws);
  /// The text up to its `cuts`-th cut, a place where a word, a punctuation mark or a line ends.
  std::string_view first(std::uint64_t cuts);

 private:
  void grow();

  const std::vector<Passage>* passages_;
  Draws draws_;
  std::string text_;
  std::vector<std::uint64_t> cuts_;
  std::uint64_t examined_ = 1;  // every cut before this byte is known
  std::uint64_t rounds_ = 0;    // number of times all passages were used
};

struct Insertion {
  double depth;  ///< share of the text that precedes it, in [0, 1)
  std::string text;
  Role role;
};

/// Appends `filler` as context, with each insertion after the last sentence that ends before its depth (or
/// the first sentence that ends after it, or a word if there is no sentence). Insertions at the same place
/// keep their order.
void weave(SpannedText& out, std::string_view filler, const std::vector<Insertion>& insertions);

}  // namespace kvsim::workload
