#include "traces/workloads/filler_text.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/split.hpp"

namespace kvsim::workload {
namespace {

constexpr std::string_view kParagraphEnd = "\n\n";

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// Whether text may end before byte `at`, which must exist: not inside a word or a character, and not after
/// white space.
bool is_cut(std::string_view text, std::uint64_t at) {
  const char before = text[at - 1], after = text[at];
  return !is_space(before) && !continues_character(after) &&
         !(is_alphanumeric(before) && is_alphanumeric(after));
}

bool ends_sentence(std::string_view text, std::uint64_t at) {
  return at >= 2 && at < text.size() && is_space(text[at]) &&
         std::string_view(".!?").find(text[at - 1]) != std::string_view::npos &&
         is_alphanumeric(text[at - 2]);
}

/// The paragraphs of `text` without trailing white space; leading white space is layout and is kept.
std::vector<std::string_view> paragraphs(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kParagraphEnd), text.size());
    std::string_view paragraph = text.substr(0, end);
    text.remove_prefix(std::min(end + kParagraphEnd.size(), text.size()));
    while (!paragraph.empty() && is_space(paragraph.back())) paragraph.remove_suffix(1);
    while (paragraph.starts_with('\n')) paragraph.remove_prefix(1);
    if (!paragraph.empty()) found.push_back(paragraph);
  }
  return found;
}

std::uint64_t place_of(std::string_view filler, double depth) {
  const auto target = static_cast<std::uint64_t>(depth * static_cast<double>(filler.size()));
  for (std::uint64_t at = target; at > 0; --at)
    if (ends_sentence(filler, at)) return at;
  for (std::uint64_t at = target + 1; at < filler.size(); ++at)
    if (ends_sentence(filler, at)) return at;
  for (std::uint64_t at = target; at > 0; --at)
    if (is_cut(filler, at)) return at;
  return 0;
}

}  // namespace

FillerText::FillerText(const std::vector<Passage>& passages, const Draws& draws)
    : passages_(&passages), draws_(draws) {
  const bool usable = std::any_of(passages.begin(), passages.end(),
                                  [](const Passage& passage) { return !paragraphs(passage.text).empty(); });
  if (!usable) input_error("holds no text", passages.empty() ? "" : passages.front().name);
}

std::string_view FillerText::first(std::uint64_t cuts) {
  if (cuts == 0) return {};
  while (cuts_.size() < cuts) grow();
  return std::string_view(text_).substr(0, cuts_[cuts - 1]);
}

void FillerText::grow() {
  const std::string round = std::to_string(rounds_);
  for (const std::uint64_t index : draws_.order(passages_->size(), "passages " + round)) {
    const std::vector<std::string_view> parts = paragraphs((*passages_)[index].text);
    // The first passage begins at a random paragraph of its first half, so that prompts begin differently.
    const std::uint64_t begin = text_.empty() ? draws_.below(parts.size() / 2 + 1, "paragraph") : 0;
    for (std::uint64_t i = begin; i < parts.size(); ++i) (text_ += parts[i]) += kParagraphEnd;
  }
  for (; examined_ < text_.size(); ++examined_)
    if (is_cut(text_, examined_)) cuts_.push_back(examined_);
  ++rounds_;
}

void weave(SpannedText& out, std::string_view filler, const std::vector<Insertion>& insertions) {
  std::vector<std::pair<std::uint64_t, const Insertion*>> places;
  for (const Insertion& insertion : insertions)
    places.emplace_back(place_of(filler, insertion.depth), &insertion);
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::uint64_t done = 0;
  for (const auto& [place, insertion] : places) {
    out.add(filler.substr(done, place - done), Role::context).add(insertion->text, insertion->role);
    done = place;
  }
  out.add(filler.substr(done), Role::context);
}

}  // namespace kvsim::workload
