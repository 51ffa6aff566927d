#include "traces/format/token_selection.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "traces/format/hdf5_output.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

constexpr std::string_view kTextPrefix = "text:";

bool are_numbers(std::string_view said) {
  return !said.empty() && said.find_first_not_of("0123456789:,") == std::string_view::npos;
}

std::uint64_t token_number(std::string_view text, const std::string& said, const std::string& where) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || rest != end)
    usage_error(in_quotes(said) + " names no tokens", where,
                "Expected numbers and ranges such as 120:135,300. For text put text: before it.");
  return value;
}

std::vector<std::uint64_t> numbered_tokens(const Header& header, const std::string& said,
                                           const std::string& where) {
  std::vector<std::uint64_t> tokens;
  for (const std::string_view part : split(said, ',')) {
    const std::size_t colon = part.find(':');
    const std::uint64_t first = token_number(part.substr(0, colon), said, where);
    const std::uint64_t end =
        colon == std::string_view::npos ? first + 1 : token_number(part.substr(colon + 1), said, where);
    if (end <= first) usage_error("the range " + std::string(part) + " holds no token", where);
    if (end > header.n_tokens())
      usage_error(std::string(part) + " is beyond the trace's " + std::to_string(header.n_tokens()) +
                      " tokens, which are numbered from 0",
                  where, "For text put text: before it.");
    for (std::uint64_t token = first; token < end; ++token) {
      if (header.segments[header.token_segment[token]].phase != Phase::prompt)
        usage_error("token " + std::to_string(token) + " belongs to an answer, not to the prompt", where);
      tokens.push_back(token);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

/// Text, and for each byte the token that it belongs to.
struct SpelledText {
  std::string bytes;
  std::vector<std::uint64_t> tokens;

  void add(const Header& header, std::uint64_t token) {
    const std::uint64_t begin = header.text_offset[token], end = header.text_offset[token + 1];
    bytes.append(header.text_bytes, begin, end - begin);
    tokens.insert(tokens.end(), end - begin, token);
  }
};

/// The last `length` bytes of the path that ends with `segment`; fewer if the path begins or an answer ends
/// within them.
SpelledText end_of_path(const Header& header, std::int32_t segment, std::size_t length) {
  std::vector<std::uint64_t> tokens;  // in reverse order
  for (std::size_t found = 0; segment >= 0 && found < length;) {
    const Segment& span = header.segments[static_cast<std::size_t>(segment)];
    if (span.phase != Phase::prompt) break;
    for (std::uint64_t token = span.begin + span.count; token-- > span.begin && found < length;) {
      tokens.push_back(token);
      found += header.text_offset[token + 1] - header.text_offset[token];
    }
    segment = span.parent;
  }
  SpelledText text;
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) text.add(header, *token);
  const std::size_t extra = text.bytes.size() - std::min(length, text.bytes.size());
  text.bytes.erase(0, extra);
  text.tokens.erase(text.tokens.begin(), text.tokens.begin() + static_cast<std::ptrdiff_t>(extra));
  return text;
}

/// The tokens of each occurrence of `text` in a prompt, ordered by its end. An occurrence is found once, in
/// the segment where it ends, however many paths continue from there.
std::vector<std::vector<std::uint64_t>> occurrences(const Header& header, const std::string& text) {
  std::vector<std::vector<std::uint64_t>> found;
  for (const Segment& segment : header.segments) {
    if (segment.phase != Phase::prompt) continue;
    SpelledText path = end_of_path(header, segment.parent, text.size() - 1);
    for (std::uint64_t token = segment.begin; token < segment.begin + segment.count; ++token)
      path.add(header, token);
    for (std::size_t at = path.bytes.find(text); at != std::string::npos;
         at = path.bytes.find(text, at + 1)) {
      const auto first = path.tokens.begin() + static_cast<std::ptrdiff_t>(at);
      std::vector<std::uint64_t> tokens(first, first + static_cast<std::ptrdiff_t>(text.size()));
      tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
      found.push_back(std::move(tokens));
    }
  }
  return found;
}

std::string times(std::size_t count) {
  return count == 1 ? "once" : std::to_string(count) + " times";
}

std::vector<std::uint64_t> spelling_tokens(const Header& header, const std::string& text,
                                           std::optional<std::uint64_t> occurrence,
                                           const std::string& where) {
  if (text.empty()) usage_error("the text is empty", where);
  if (header.text_offset.empty())
    usage_error("the trace stores no text to find " + in_quotes(text) + " in", where,
                "Say token numbers, such as 120:135,300.");
  const std::vector<std::vector<std::uint64_t>> found = occurrences(header, text);
  if (found.empty())
    usage_error(in_quotes(text) + " is not in the prompt", where,
                "It is compared byte by byte: white space and ends of lines count.");
  if (found.size() > 1 && !occurrence) {
    usage_error(in_quotes(text) + " is in the prompt " + times(found.size()) + ", first at tokens " +
                    std::to_string(found[0].front()) + " and " + std::to_string(found[1].front()),
                where, "Say more of it, or add --occurrence N, or --occurrence all.");
  }
  if (found.size() > 1 && *occurrence > found.size())
    usage_error(in_quotes(text) + " is in the prompt " + times(found.size()), "--occurrence");
  if (found.size() == 1) return found.front();
  if (*occurrence != kEveryOccurrence) return found[*occurrence - 1];
  std::vector<std::uint64_t> all;
  for (const std::vector<std::uint64_t>& tokens : found) all.insert(all.end(), tokens.begin(), tokens.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

std::vector<std::uint64_t> select_tokens(const Header& header, const std::string& said,
                                         std::optional<std::uint64_t> occurrence, const std::string& where) {
  if (are_numbers(said)) return numbered_tokens(header, said, where);
  const bool prefixed = said.starts_with(kTextPrefix);
  return spelling_tokens(header, prefixed ? said.substr(kTextPrefix.size()) : said, occurrence, where);
}

void write_marked_copy(const std::string& original, const std::string& path,
                       const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       bool overwrite) {
  // Opening the trace checks its structure before libhdf5 changes the copy.
  const std::unique_ptr<Source> source = open_trace(original);
  if (source->header().n_tokens() != token_flags.size()) bug("flags for another number of tokens", original);
  hdf5::OutputFile file(path, overwrite, original);
  {
    const hdf5::Session session;
    const std::string where = path + ":/tokens";
    const hdf5::Object tokens(
        hdf5::check(H5Oopen(file.id(), "/tokens", H5P_DEFAULT), "cannot be opened", where));
    hdf5::replace_list(tokens.id(), "flags", token_flags, where);
    hdf5::replace(tokens.id(), "flags_known", flags_known, where);
  }
  source->require_unchanged();
  file.commit();
}

}  // namespace kvsim::trace
