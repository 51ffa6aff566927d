#include "analysis/results/format.hpp"

#include <string>
#include <vector>

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
  std::vector<std::string> known;
  for (const NamedFormat& format : kFormats) {
    if (name == format.name) return format.format;
    known.emplace_back(format.name);
  }
  usage_error("unknown format '" + std::string(name) + "'", "--format", suggestion(name, known));
}

}  // namespace kvsim::analysis
