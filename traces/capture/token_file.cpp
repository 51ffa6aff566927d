#include "traces/capture/token_file.hpp"

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::capture {
namespace {

constexpr std::size_t kMaxIds = 1ULL << 24;
constexpr std::string_view kSpace = " \t\r\n";

std::vector<std::int32_t> parse_words(std::string_view text, std::uint64_t vocab_size,
                                      const std::string& where) {
  std::vector<std::int32_t> ids;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;
       begin = text.find_first_not_of(kSpace, begin)) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::string place = where + " token " + std::to_string(ids.size());
    if (ids.size() == kMaxIds) input_error("more than 16777216 tokens", where);
    const auto id = number_of<std::uint64_t>(word);
    if (!id) {
      input_error(in_quotes(word) + " is not a token id", place,
                  "Expected a JSON array of ids, or ids separated by white space.");
    }
    if (*id >= vocab_size) {
      input_error(std::to_string(*id) + " is outside the model's vocabulary of " + std::to_string(vocab_size),
                  place);
    }
    ids.push_back(static_cast<std::int32_t>(*id));
    begin = end;
  }
  return ids;
}

std::vector<std::int32_t> parse_array(std::string_view text, std::uint64_t vocab_size,
                                      const std::string& where) {
  const boost::json::value document = parse_strict_json(text, where, kMaxIds + 1);
  if (!document.is_array()) input_error("expected a JSON array of token ids", where);
  std::vector<std::int32_t> ids;
  for (const boost::json::value& value : document.get_array()) {
    const std::string place = where + " token " + std::to_string(ids.size());
    ids.push_back(static_cast<std::int32_t>(json_integer(value, place, 0, vocab_size - 1)));
  }
  return ids;
}

}  // namespace

std::vector<std::int32_t> parse_token_ids(std::string_view text, std::uint64_t vocab_size,
                                          const std::string& where) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text[first] == '[' ? parse_array(text, vocab_size, where) : parse_words(text, vocab_size, where);
}

}  // namespace kvsim::capture
