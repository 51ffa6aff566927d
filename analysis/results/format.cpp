#include "analysis/results/format.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

struct NamedFormat {
  const char* name;
  Format format;
};
constexpr NamedFormat kFormats[] = {{"table", Format::table}, {"csv", Format::csv}, {"json", Format::json},
                                    {"jsonl", Format::jsonl}, {"md", Format::md},   {"h5", Format::h5}};

}  // namespace

Format parse_format(std::string_view name) {
  for (const NamedFormat& format : kFormats)
    if (name == format.name) return format.format;
  usage_error("unknown format '" + std::string(name) + "'", "--format", suggestion(name, format_names()));
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

}  // namespace kvsim::analysis
