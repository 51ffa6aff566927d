#include "analysis/study/trace_record.hpp"

#include <boost/json.hpp>

#include "analysis/study/config/study_fields.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMostTokens = 1ULL << 40;
constexpr std::size_t kMostValues = 100'000;

}  // namespace

json::object trace_entry(const StudiedTrace& trace) {
  json::array cuts;
  for (const StudiedTrace::Cut& cut : trace.cuts)
    cuts.push_back(json::object{{"cut", cut.cut}, {"prompt", cut.prompt}, {"decode", cut.decode}});
  json::object entry{
      {"name", trace.name},   {"workload", trace.workload}, {"content_sha256", trace.content_sha256},
      {"model", trace.model}, {"prompt", trace.prompt},     {"decode", trace.decode},
      {"cuts", cuts},         {"captured", trace.captured}};
  if (!trace.problem.empty()) entry["problem"] = trace.problem;
  return entry;
}

std::string record_file(const std::string& trace) {
  return "traces/" + trace + ".json";
}

std::string record_text(const StudiedTrace& trace) {
  json::object entry = trace_entry(trace);
  entry["weights_sha256"] = trace.weights_sha256;
  return readable_json(entry);
}

StudiedTrace parse_record(const std::string& text, const std::string& where) {
  const json::value document = parse_strict_json(text, where, kMostValues);
  const JsonObject entry(document, where);
  StudiedTrace out;
  out.name = entry.text("name");
  out.workload = entry.text("workload");
  out.content_sha256 = entry.text("content_sha256");
  out.model = entry.text("model");
  out.weights_sha256 = entry.text("weights_sha256");
  out.prompt = entry.integer("prompt", 0, kMostTokens);
  out.decode = entry.integer("decode", 0, kMostTokens);
  for (const json::value& each : entry.array("cuts")) {
    const JsonObject cut(each, entry.path("cuts"));
    out.cuts.push_back(
        {cut.text("cut"), cut.integer("prompt", 0, kMostTokens), cut.integer("decode", 0, kMostTokens)});
  }
  out.captured = true;
  return out;
}

}  // namespace kvsim::analysis
