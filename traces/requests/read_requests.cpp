#include "traces/requests/read_requests.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "sim/base/text_lines.hpp"
#include "traces/requests/generated_blocks.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 26;
constexpr std::uint64_t kLinesPerReport = 256;

const std::vector<LineFormat>& formats() {
  // The first that recognises a line reads it: a Bailian line has all fields of a Mooncake line.
  static const std::vector<LineFormat> kFormats = [] {
    std::vector<LineFormat> all{bailian_format(), mooncake_format(), kvcache_simulator_format(),
                                dynamo_format(),  lmcache_format(),  llmservingsim_format(),
                                openai_format()};
    for (LineFormat& format : csv_formats()) all.push_back(std::move(format));
    all.push_back(own_json_format());
    return all;
  }();
  return kFormats;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const LineFormat& format : formats()) names.push_back(format.said.name);
  return names;
}

const LineFormat& format_named(const std::string& name) {
  for (const LineFormat& format : formats())
    if (format.said.name == name) return format;
  usage_error("unknown format " + in_quotes(name) + " of requests", {}, suggestion(name, format_names()));
}

/// The names of a JSON line's members, or of the columns of a csv file.
std::vector<std::string> names_of(std::string_view line) {
  if (std::vector<std::string> names = json_names(line); !names.empty()) return names;
  std::vector<std::string> names;
  for (const std::string_view column : split(line, ',')) names.emplace_back(trimmed(column));
  return names;
}

bool recognises(const LineFormat& format, const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  return std::ranges::none_of(format.lacks, has) &&
         std::ranges::any_of(format.shown_by,
                             [&](const auto& wanted) { return std::ranges::all_of(wanted, has); });
}

const LineFormat& format_of(std::string_view line, const std::string& where) {
  const std::vector<std::string> names = names_of(line);
  for (const LineFormat& format : formats())
    if (recognises(format, names)) return format;
  for (const std::string_view event : {"\"BlockStored\"", "\"BlockRemoved\"", "\"AllBlocksCleared\""})
    if (line.find(event) != std::string_view::npos) refuse_cache_event(where);
  input_error("looks like no known format of requests", where,
              "Known: " + joined(format_names()) +
                  "; name it: --from FORMAT. For a log of your own also what it calls its fields: "
                  "--from jsonl --fields time=NAME,prompt=NAME,output=NAME.");
}

void skip_mark(std::string_view& line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
}

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

/// The lines of a file, or of all files of a folder, where a log was rotated, in the order of their names:
/// numbered as if they were one file. Blank ones are passed over.
class RotatedLines {
 public:
  explicit RotatedLines(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    std::error_code failed;
    if (!std::filesystem::is_directory(path, failed)) {
      files_.push_back(path);
      return;
    }
    for (const std::filesystem::path& file : entries_of(path, failed)) {
      if (!std::filesystem::is_regular_file(file)) input_error("is no file of a log", file.string());
      files_.push_back(file.string());
      total_ += std::filesystem::file_size(file);
    }
    if (failed) input_error("cannot be listed: " + failed.message(), path);
    name_ = (std::filesystem::path(path) / "*").string();
  }

  bool next(std::string_view& line) {
    begins_file_ = false;
    while (true) {
      if (lines_ == nullptr) {
        if (file_ == files_.size()) return false;
        lines_ = std::make_unique<TextLines>(files_[file_++], kMaxLine);
        total_ = std::max(total_, lines_->file_bytes());
        begins_file_ = true;
      }
      if (!lines_->next(line)) {
        lines_before_ += lines_->number();
        bytes_before_ += lines_->bytes_read();
        lines_.reset();
        continue;
      }
      if (lines_->number() == 1) skip_mark(line);
      if (!blank(line)) return true;
    }
  }

  std::uint64_t number() const { return lines_before_ + lines_->number(); }
  /// Whether the line is the first of its file.
  bool begins_file() const { return begins_file_; }
  const std::string& name() const { return name_; }
  std::uint64_t file_bytes() const { return total_; }
  std::uint64_t bytes_read() const { return bytes_before_ + (lines_ ? lines_->bytes_read() : 0); }

 private:
  std::string name_;
  std::vector<std::string> files_;
  std::unique_ptr<TextLines> lines_;
  std::size_t file_ = 0;
  std::uint64_t lines_before_ = 0, bytes_before_ = 0, total_ = 0;
  bool begins_file_ = false;
};

/// `bad_line` takes what a line throws, or throws it again.
template <class BadLine>
RequestTrace read_lines(const std::string& path, const ReadOptions& options, const BadLine& bad_line) {
  RotatedLines lines(path);
  std::string_view line;
  if (!lines.next(line)) input_error("has no requests", lines.name());
  const std::string first = lines.name() + " line " + std::to_string(lines.number());
  const LineFormat& format = options.format.empty() ? format_of(line, first) : format_named(options.format);
  if (!format.said.blocks && options.block_tokens > 0)
    usage_error("a trace of format " + format.said.name + " has no blocks", "block tokens",
                "Leave --block-tokens out.");
  TraceBuilder builder(lines.name(), format.said.name, options, format.defaults);
  const std::unique_ptr<LineReader> reader = format.reader(options);
  bool more = true, bad = false;
  if (options.progress != nullptr) options.progress->total = lines.file_bytes();
  for (; more && (options.limit == 0 || builder.trace().requests.size() < options.limit);
       more = lines.next(line)) {
    builder.at_line(lines.number());
    if (lines.begins_file() && reader->has_header()) {
      reader->read_header(line, builder.where());
      continue;
    }
    try {
      reader->read(line, builder);
    } catch (const Error& error) {
      bad_line(error, lines.number());
      bad = true;
    }
    if (options.progress != nullptr && lines.number() % kLinesPerReport == 0) {
      options.progress->check();
      options.progress->done = lines.bytes_read();
    }
  }
  if (bad && builder.trace().requests.empty()) return builder.trace();  // what is wrong has been said
  RequestTrace trace = builder.finish();
  if (options.limit > 0 && trace.requests.size() > options.limit) trace.requests.resize(options.limit);
  if (options.generated == Generated::inferred) infer_generated(trace);
  if (options.generated == Generated::none) forget_generated(trace);
  return trace;
}

}  // namespace

void refuse_cache_event(const std::string& where) {
  input_error("is an event of a cache, which says what was stored and not what was asked for", where,
              "Record requests: beside vLLM kvsim.vllm.record(llm, None, log=\"requests.jsonl\"), in Dynamo "
              "DYN_REQUEST_TRACE=1.");
}

const std::vector<RequestFormat>& request_formats() {
  static const std::vector<RequestFormat> kSaid = [] {
    std::vector<RequestFormat> said;
    for (const LineFormat& format : formats()) said.push_back(format.said);
    return said;
  }();
  return kSaid;
}

RequestTrace read_requests(const std::string& path, const ReadOptions& options) {
  return read_lines(path, options, [](const Error&, std::uint64_t) { throw; });
}

RequestTrace read_on(const std::string& path, const ReadOptions& options,
                     const std::function<void(Violation)>& found) {
  return read_lines(path, options, [&](const Error& error, std::uint64_t line) {
    if (error.kind() != ErrorKind::input) throw;
    found({line, error.problem(), error.hint()});
  });
}

}  // namespace kvsim::requests
