#pragma once
/// A format of request traces, one file each (format_NAME.cpp); read_requests.cpp lists them.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/requests/trace_builder.hpp"

namespace kvsim::requests {

/// Reads a file of one format line by line.
class LineReader {
 public:
  virtual ~LineReader() = default;
  /// Whether the first line names the columns.
  virtual bool has_header() const { return false; }
  virtual void read_header(std::string_view, const std::string&) {}
  /// Adds what the line says. Throws Error(input) at out.where().
  virtual void read(std::string_view line, TraceBuilder& out) = 0;
};

/// Made member by member: a braced one in a return statement is freed twice by GCC 12 where memory ends while
/// a later member is built.
struct LineFormat {
  RequestFormat said{};
  FormatDefaults defaults{};
  /// A first line is of this format if it has all names of one of these lists and none of `lacks`; names are
  /// those of a JSON object, or of the columns of a csv file.
  std::vector<std::vector<std::string_view>> shown_by{};
  std::vector<std::string_view> lacks{};
  std::function<std::unique_ptr<LineReader>(const ReadOptions& options)> reader{};
};

/// Makes a reader that asks no options.
template <class Reader>
std::unique_ptr<LineReader> made(const ReadOptions&) {
  return std::make_unique<Reader>();
}

LineFormat mooncake_format();
LineFormat bailian_format();
LineFormat kvcache_simulator_format();
LineFormat dynamo_format();
LineFormat lmcache_format();
LineFormat llmservingsim_format();
LineFormat openai_format();
/// Azure's, BurstGPT's, Vidur's and one's own.
std::vector<LineFormat> csv_formats();
LineFormat own_json_format();

/// Refuses what an engine says of its cache's blocks.
[[noreturn]] void refuse_cache_event(const std::string& where);

/// What a log of one's own calls a field: that field's name where none was said.
std::string_view own_name(const ReadOptions& options, std::string_view field);

// Times as logs write them.

/// Seconds since 1970 of "2024-05-10 00:00:00.009930+00:00" in UTC, whose fraction and zone may be left out
/// and which may have a T between date and time. nullopt: it is none.
std::optional<double> seconds_of(std::string_view text);

/// That, or a number of seconds. Throws Error(input) naming `field` at `where` for anything else.
double seconds_at(std::string_view text, std::string_view field, const std::string& where);

}  // namespace kvsim::requests
