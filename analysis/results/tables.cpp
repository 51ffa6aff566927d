#include "analysis/results/tables.hpp"

#include <ostream>

#include "analysis/results/json_string.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

void write_json(std::ostream& out, const std::vector<Row>& rows, const Inputs& inputs) {
  std::vector<std::string> traces;
  for (const Inputs::TraceId& trace : inputs.traces) traces.push_back(json_trace(trace));
  out << "{\n  \"schema_version\": " << kSchemaVersion << ",\n  \"inputs\": {\n"
      << "    \"loop\": \"open\",\n"
      << "    \"traces\": " << json_lines_list(traces, "    ") << ",\n"
      << "    \"policies\": " << json_list(inputs.policies) << ",\n"
      << "    \"budgets\": " << json_list(inputs.budgets) << ",\n"
      << "    \"scope\": " << json_string(scope_name(inputs.scope)) << ",\n"
      << "    \"seed\": " << inputs.seed;
  if (!inputs.importance.empty())
    out << ",\n    \"importance\": " << json_string(inputs.importance)
        << ",\n    \"peak\": " << json_string(inputs.peak);
  if (!inputs.machine.empty())
    out << ",\n    \"machine\": " << json_string(inputs.machine)
        << ",\n    \"model\": " << json_string(inputs.model);
  out << "\n  },\n"
      << "  \"results\": " << json_lines_list(json_objects(records_of(rows)), "  ") << "\n}\n";
}

struct NamedFormat {
  const char* name;
  Format format;
};
constexpr NamedFormat kFormats[] = {{"table", Format::table}, {"csv", Format::csv}, {"json", Format::json},
                                    {"jsonl", Format::jsonl}, {"md", Format::md},   {"h5", Format::h5}};

}  // namespace

const char* const kOpenLoopNote =
    "Open loop: each recorded query is answered exactly as the compressed cache would answer it; what that "
    "answer\n"
    "would have changed later is not seen.";

Format parse_format(std::string_view name) {
  std::vector<std::string> known;
  for (const NamedFormat& format : kFormats) {
    if (name == format.name) return format.format;
    known.emplace_back(format.name);
  }
  usage_error("unknown format '" + std::string(name) + "'", "--format", suggestion(name, known));
}

std::string json_trace(const Inputs::TraceId& trace) {
  return "{\"trace\": " + json_string(trace.name) + ", \"content_sha256\": " +
         (trace.content_sha256.empty() ? "null" : json_string(trace.content_sha256)) +
         ", \"prompt\": " + std::to_string(trace.prompt) + ", \"decode\": " + std::to_string(trace.decode) +
         (trace.cut.empty() ? "" : ", \"cut\": " + json_string(trace.cut)) + '}';
}

void write_rows(std::ostream& out, Format format, const std::vector<Row>& rows, const Inputs& inputs) {
  switch (format) {
    case Format::table:
      return write_console_table(out, rows);
    case Format::csv:
      return write_csv(out, records_of(rows));
    case Format::json:
      return write_json(out, rows, inputs);
    case Format::jsonl:
      return write_jsonl(out, records_of(rows));
    case Format::md:
      write_md(out, records_of(rows));
      out << '\n' << kOpenLoopNote << '\n';
      return;
    case Format::h5:
      break;
  }
  bug("not a format of text");
}

}  // namespace kvsim::analysis
