// Logs of one's own as JSON Lines, whose fields may have any names (ReadOptions::fields).
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <utility>

#include "sim/base/strict_json.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kMaxLogValues = std::size_t{1} << 23;
constexpr double kMostArrival = 1e12;

/// Prompts and outputs are numbers of tokens, lists of token ids or of messages, or texts; of all but the
/// first, blocks are known.
class OwnJsonReader : public LineReader {
 public:
  explicit OwnJsonReader(const ReadOptions& options) : options_(options) {}

  void read(std::string_view line, TraceBuilder& out) override {
    const boost::json::value value = parse_strict_json(line, out.where(), kMaxLogValues);
    const JsonObject object(value, out.where());
    Request request{.time_s = time_of(object)};
    const auto [owner, name] = place_of(object, own_name(options_, "session"));
    if (const boost::json::value* session = owner.find(name))
      out.continue_session(request, session->is_string() ? std::string(session->get_string())
                                                         : boost::json::serialize(*session));
    const bool known = take(object, "prompt", prompt_, prompt_tokens_);
    const bool output_known = take(object, "output", output_, output_tokens_);
    if (known)
      out.add_tokens(request, prompt_, output_tokens_, output_known ? &output_ : nullptr);
    else
      out.add(request, prompt_tokens_, output_tokens_, nullptr);
  }

 private:
  /// The object that has a field, and what it is called there: usage.prompt_tokens lies in usage.
  static std::pair<JsonObject, std::string> place_of(const JsonObject& object, std::string_view name) {
    const std::size_t dot = name.find('.');
    if (object.has(name) || dot == std::string_view::npos) return {object, std::string(name)};
    return place_of(object.object(name.substr(0, dot)), name.substr(dot + 1));
  }

  double time_of(const JsonObject& object) const {
    const auto [owner, field] = place_of(object, own_name(options_, "time"));
    const boost::json::value& value = owner.at(field);
    return value.is_string() ? seconds_at(std::string(value.get_string()), field, owner.where())
                             : owner.number(field, 0, kMostArrival);
  }

  /// Reads tokens and their number; false: the number alone.
  bool take(const JsonObject& object, std::string_view field, std::vector<std::uint64_t>& tokens,
            std::uint64_t& count) const {
    tokens.clear();
    const auto [owner, name] = place_of(object, own_name(options_, field));
    const boost::json::value& value = owner.at(name);
    const boost::json::array* ids = value.if_array();
    const bool messages = ids != nullptr && !ids->empty() && ids->front().is_object();
    if (ids != nullptr && !messages) {
      for (const boost::json::value& id : *ids)
        tokens.push_back(json_integer(id, owner.path(name), 0, UINT32_MAX));
    } else if (messages || value.is_string()) {
      if (!options_.encode)
        usage_error("is a text, whose tokens only a tokenizer knows", owner.path(name),
                    "Add --tokenizer MODEL, or give its number of tokens.");
      std::string text = messages ? boost::json::serialize(value) : std::string(value.get_string());
      for (const std::int32_t id : options_.encode(std::move(text), messages, owner.path(name)))
        tokens.push_back(static_cast<std::uint64_t>(id));
    } else {
      count = owner.integer(name, 0, kMostTokens);
      return false;
    }
    count = tokens.size();
    return true;
  }

  const ReadOptions& options_;
  std::vector<std::uint64_t> prompt_, output_;
  std::uint64_t prompt_tokens_ = 0, output_tokens_ = 0;
};

}  // namespace

std::string_view own_name(const ReadOptions& options, std::string_view field) {
  const auto found = std::ranges::find(options.fields, field, &FieldNames::value_type::first);
  return found == options.fields.end() ? field : std::string_view(found->second);
}

// Recognised by nothing: it is read so only where that is said.
LineFormat own_json_format() {
  LineFormat format;
  format.said = {
      "jsonl",
      "Your own JSON Lines, alike, with names like usage.prompt_tokens for what lies in objects; prompt and "
      "output may be texts or lists of token ids, prompt messages",
      true};
  format.defaults = {.block_tokens = 16, .tail = Tail::missing, .from_first = true};
  format.reader = [](const ReadOptions& options) { return std::make_unique<OwnJsonReader>(options); };
  return format;
}

}  // namespace kvsim::requests
