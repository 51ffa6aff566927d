#include "traces/model/tokenizers/text_normalizer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::model {
namespace {

constexpr std::array<std::pair<const char*, NormalForm>, 4> kForms{{{"NFC", NormalForm::nfc},
                                                                    {"NFD", NormalForm::nfd},
                                                                    {"NFKC", NormalForm::nfkc},
                                                                    {"NFKD", NormalForm::nfkd}}};

}  // namespace

TextNormalizer::TextNormalizer(const JsonObject& json) {
  parse(json);
}

void TextNormalizer::parse(const JsonObject& json) {
  const std::string type = json.text("type");
  for (const auto& [name, form] : kForms) {
    if (type == name) return steps_.push_back({.kind = Kind::normal_form, .form = form});
  }
  if (type == "Lowercase") {
    steps_.push_back({.kind = Kind::lowercase});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .content = json.text("prepend")});
  } else if (type == "Replace") {
    steps_.push_back(
        {.kind = Kind::replace, .pattern = plain_pattern(json), .content = json.text("content")});
  } else if (type == "Sequence") {
    const boost::json::array& parts = json.array("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i)
      parse({parts[i], json.where() + "[" + std::to_string(i) + "]"});
  } else {
    not_supported("normalizer", type, json.where());
  }
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::normal_form:
        result = normalize(step.form, result);
        break;
      case Kind::lowercase:
        result = lowercase(result);
        break;
      case Kind::prepend:
        if (!result.empty()) result.insert(0, step.content);
        break;
      case Kind::replace:
        result = replace_all(result, step.pattern, step.content);
        break;
    }
    if (result.size() > kMaxRewrittenBytes)
      input_error("makes a text longer than " + bytes_text(kMaxRewrittenBytes), "normalizer");
  }
  return result;
}

namespace {

constexpr std::size_t kMaxMapBytes = 4ULL << 20, kMaxReplacement = 1024;
constexpr unsigned kMaxRules = 32;
constexpr std::uint32_t kValueBit = 1U << 31;

// A unit of the array holds a label, a bit that says whether a rule ends there, and the offset of its
// children.
std::uint32_t label(std::uint32_t unit) {
  return unit & (kValueBit | 0xff);
}
bool ends_rule(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t offset(std::uint32_t unit) {
  return unit >> 10 << ((unit & 1U << 9) >> 6);
}

std::vector<std::uint32_t> parse_units(std::string_view map, const std::string& where,
                                       std::string_view& replacements) {
  std::uint32_t bytes = 0;
  if (map.size() > kMaxMapBytes) input_error("larger than 4 MiB", where);
  if (map.size() < sizeof bytes) input_error("cut short", where);
  std::memcpy(&bytes, map.data(), sizeof bytes);
  map.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % sizeof(std::uint32_t) != 0 || bytes >= map.size())
    input_error("the size of its array does not fit", where);
  std::vector<std::uint32_t> units(bytes / sizeof(std::uint32_t));
  std::memcpy(units.data(), map.data(), bytes);
  replacements = map.substr(bytes);
  return units;
}

void check_replacements(std::string_view text, const std::string& where) {
  if (text.back() != '\0') input_error("the last replacement has no end", where);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    if (end - begin > kMaxReplacement) input_error("a replacement longer than 1024 bytes", where);
    begin = end + 1;
  }
}

/// Walks every path of the array. Its builder may share equal suffixes, so it is an acyclic graph, not a
/// tree.
class ArrayWalk {
 public:
  ArrayWalk(std::string_view map, const std::string& where)
      : where_(where),
        units_(parse_units(map, where, replacements_)),
        state_(units_.size()),
        rules_(units_.size()) {
    check_replacements(replacements_, where);
  }

  void check() {
    std::vector<std::uint32_t> path{0};
    while (!path.empty()) {
      const std::uint32_t at = path.back();
      if (state_[at] == State::fresh) {
        state_[at] = State::open;
        enter(at, path);
      } else {
        path.pop_back();
        if (state_[at] == State::open) leave(at);
      }
    }
  }

 private:
  enum class State : unsigned char { fresh, open, done };

  template <class Visit>
  void each_child(std::uint32_t at, Visit visit) const {
    const std::uint32_t base = at ^ offset(units_[at]);
    if ((base | 0xff) >= units_.size()) input_error("a rule leads out of its array", where_);
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      if (label(units_[base ^ byte]) == byte) visit(base ^ byte);
    }
  }

  void enter(std::uint32_t at, std::vector<std::uint32_t>& path) {
    each_child(at, [&](std::uint32_t child) {
      if (state_[child] == State::open) input_error("a rule without an end", where_);
      if (state_[child] == State::fresh) path.push_back(child);
      const std::uint32_t value_at = child ^ offset(units_[child]);
      if (ends_rule(units_[child]) &&
          (value_at >= units_.size() || (units_[value_at] & ~kValueBit) >= replacements_.size()))
        input_error("a rule without a replacement", where_);
    });
  }

  void leave(std::uint32_t at) {
    state_[at] = State::done;
    each_child(at, [&](std::uint32_t child) {
      const unsigned rules = rules_[child] + ends_rule(units_[child]);
      if (rules > kMaxRules) input_error("more than 32 rules begin alike", where_);
      rules_[at] = std::max(rules_[at], static_cast<unsigned char>(rules));
    });
  }

  const std::string& where_;
  std::string_view replacements_;
  std::vector<std::uint32_t> units_;
  std::vector<State> state_;
  std::vector<unsigned char> rules_;  ///< by unit: the largest number of rules that end on a path from it
};

}  // namespace

void check_charsmap(std::string_view map, const std::string& where) {
  ArrayWalk(map, where).check();
}

}  // namespace kvsim::model
