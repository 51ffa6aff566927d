#pragma once
/// Running text of any length, and facts put between its sentences.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/workloads/draws.hpp"
#include "traces/workloads/passages.hpp"
#include "traces/workloads/spanned_text.hpp"

namespace kvsim::workload {

/// Text without end: from a random paragraph of a random passage to that passage's end, then the others in
/// random order, again and again. A longer piece continues a shorter one.
class FillerText {
 public:
  /// `passages` must outlive this and hold more than white space.
  FillerText(const std::vector<Passage>& passages, const Draws& draws);
  /// The text up to its `cuts`-th place where a word, a mark or a line ends.
  std::string_view first(std::uint64_t cuts);

 private:
  void grow();

  const std::vector<Passage>* passages_;
  Draws draws_;
  std::string text_;
  std::vector<std::uint64_t> cuts_;
  std::uint64_t examined_ = 1;  // bytes before which every cut is known
  std::uint64_t rounds_ = 0;    // times all passages were used
};

struct Insertion {
  double depth;  ///< share of the text before it, in [0, 1)
  std::string text;
  Role role;
};

/// Appends `filler` as context, each insertion behind the last sentence that ends before its depth (or the
/// first one after it, or a word when there is no sentence). Insertions of one place keep their order.
void weave(SpannedText& out, std::string_view filler, const std::vector<Insertion>& insertions);

}  // namespace kvsim::workload
