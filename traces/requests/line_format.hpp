#pragma once
/// A format of request traces, one file each (format_NAME.cpp); read_requests.cpp lists them.
#include <memory>
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

struct LineFormat {
  RequestFormat said{};
  FormatDefaults defaults{};
  /// Whether a first line looks like this format: its names are those of a JSON object, or of the columns of
  /// a csv file.
  bool (*recognises)(const std::vector<std::string>& names) = nullptr;
  std::unique_ptr<LineReader> (*reader)(const ReadOptions& options) = nullptr;
};

LineFormat mooncake_format();
LineFormat bailian_format();
LineFormat kvcache_simulator_format();
LineFormat lmcache_format();
LineFormat llmservingsim_format();
LineFormat azure_format();
LineFormat burstgpt_format();
LineFormat vidur_format();
LineFormat own_csv_format();
LineFormat own_json_format();

/// Whether `names` has all of these.
bool has_names(const std::vector<std::string>& names, std::initializer_list<std::string_view> wanted);

}  // namespace kvsim::requests
