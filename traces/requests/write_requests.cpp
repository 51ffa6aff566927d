#include "traces/requests/write_requests.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/gzip.hpp"
#include "sim/base/partial_file.hpp"
#include "traces/requests/trace_builder.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 22;  ///< bytes of text that are compressed at a time
constexpr double kMostExactSeconds = 0x1p31;          ///< up to which a double keeps microseconds as they are

bool any(const RequestTrace& trace, bool (*holds)(const Request&)) {
  return std::any_of(trace.requests.begin(), trace.requests.end(), holds);
}

void append_number(std::string& out, std::uint64_t number) {
  char digits[20];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

/// `seconds` times 10^places, without zeros at the end.
void append_time(std::string& out, double seconds, int places) {
  if (!(seconds >= 0 && seconds <= kMostExactSeconds))
    usage_error("a time of " + std::to_string(seconds) + " seconds cannot be written to a microsecond");
  const auto micros = static_cast<std::uint64_t>(std::llround(seconds * 1e6));
  const std::uint64_t unit = places == 3 ? 1000 : 1000000;
  append_number(out, micros / unit);
  std::uint64_t rest = micros % unit;
  if (rest == 0) return;
  std::string digits = std::to_string(unit + rest).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  (out += '.') += digits;
}

void append_text(std::string& out, const std::string& text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (byte < 0x20) {
      ((out += "\\u00") += kHex[byte / 16]) += kHex[byte % 16];
    } else {
      out += c;
    }
  }
  out += '"';
}

class Lines {
 public:
  Lines(const RequestTrace& trace, WrittenFormat format)
      : trace_(trace), format_(format), numbers_(trace.hashing) {
    const std::uint32_t usual = format == WrittenFormat::mooncake ? 512 : 16;
    says_size_ = trace.has_blocks() && trace.block_tokens != usual;
  }

  void append(std::string& out, std::uint32_t number) {
    const Request& request = trace_.requests[number];
    if (format_ == WrittenFormat::mooncake) {
      append_time(out += R"({"timestamp": )", request.time_s, 3);
    } else {
      append_turn(out, number);
    }
    append_number(out += R"(, "input_length": )", request.prompt_tokens);
    append_number(out += R"(, "output_length": )", request.generated_tokens);
    if (says_size_) append_number(out += R"(, "block_size": )", trace_.block_tokens);
    if (trace_.has_blocks()) append_ids(out, request);
    out += "}\n";
  }

 private:
  void append_turn(std::string& out, std::uint32_t number) {
    const Request& request = trace_.requests[number];
    append_number(out += R"({"chat_id": )", number);
    out += R"(, "parent_chat_id": )";
    if (request.parent == kNone) {
      out += "-1";
    } else {
      append_number(out, request.parent);
    }
    append_time(out += request.after_parent ? R"(, "delay": )" : R"(, "timestamp": )", request.time_s, 6);
    if (request.category != kNone) append_text(out += R"(, "type": )", trace_.categories[request.category]);
    turns_.push_back(request.turn != kNone     ? request.turn
                     : request.parent == kNone ? 1
                                               : turns_[request.parent] + 1);
    append_number(out += R"(, "turn": )", turns_.back());
  }

  void append_ids(std::string& out, const Request& request) {
    out += R"(, "hash_ids": [)";
    std::uint32_t prefix = kNone;
    bool first = true;
    for (const BlockId id : trace_.prompt_blocks(request)) {
      prefix = numbers_.number(prefix, id);
      append_number(out += first ? "" : ", ", prefix);
      first = false;
    }
    out += ']';
  }

  const RequestTrace& trace_;
  WrittenFormat format_;
  bool says_size_ = false;
  PrefixNumbers numbers_;
  std::vector<std::uint32_t> turns_;
};

}  // namespace

std::vector<std::string> left_out(const RequestTrace& trace, WrittenFormat format) {
  std::vector<std::string> out;
  if (format == WrittenFormat::mooncake) {
    if (any(trace, [](const Request& request) { return request.after_parent; }))
      usage_error("cannot say that requests wait for others to end", "format mooncake",
                  "--to bailian can: it writes the turns of sessions.");
    if (any(trace, [](const Request& request) { return request.session != kNone; }))
      out.push_back("the file does not say which requests are turns of one session; --to bailian does");
    if (!trace.categories.empty())
      out.push_back("the file does not say the categories of requests; --to bailian does");
  }
  if (any(trace, [](const Request& request) { return request.priority != 0; }))
    out.push_back("the file does not say the priorities of requests");
  if (trace.generated == Generated::given)
    out.push_back("the file does not say the blocks of generated tokens, but those that later turns contain");
  if (!trace.has_blocks())
    out.push_back("the file has no hash_ids: the trace does not say which prompts share tokens");
  return out;
}

void write_requests(const RequestTrace& trace, const std::string& path, const WriteOptions& options) {
  left_out(trace, options.format);
  AtomicFile file(path, options.overwrite);
  const bool compressed = path.ends_with(".gz");
  Lines lines(trace, options.format);
  std::string text;
  const auto write = [&] {
    file.write(compressed ? gzipped(text) : text);
    text.clear();
  };
  if (options.progress != nullptr) options.progress->total = trace.requests.size();
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    lines.append(text, i);
    if (text.size() < kPiece) continue;
    write();
    if (options.progress == nullptr) continue;
    options.progress->check();
    options.progress->done = i;
  }
  if (!text.empty()) write();
  file.commit();
}

}  // namespace kvsim::requests
