#include "analysis/hash_report.hpp"

#include <ostream>

#include "analysis/numbers.hpp"
#include "analysis/text_table.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

Value value(const std::optional<double>& number) {
  return number ? Value(*number) : Value();
}

Records records_of(const std::vector<HashReport>& reports) {
  Records out;
  out.keys = {"trace", "bits",      "correlation",       "correlation_spread",
              "heads", "undefined", "correlation_noise", "correlation_noise_spread"};
  for (const HashReport& report : reports)
    for (const sim::HashCorrelation& of : report.lengths)
      out.fields.push_back({report.trace, std::uint64_t{of.bits}, value(of.trace.mean),
                            value(of.trace.spread), std::uint64_t{of.trace.defined},
                            std::uint64_t{of.trace.undefined}, value(of.noise.mean), value(of.noise.spread)});
  return out;
}

std::string rounded(const std::optional<double>& number) {
  return number ? rounded_text(*number) : "-";
}

void write_table(std::ostream& out, const std::vector<HashReport>& reports) {
  TextTable table;
  const bool several = reports.size() > 1;
  if (several) table.add_column("trace", Align::left);
  table.add_column("bits", Align::right);
  for (const char* heading : {"correlation", "spread", "noise correlation", "noise spread", "above noise"})
    table.add_column(heading, Align::point);
  table.add_column("heads", Align::right);
  table.add_column("undefined", Align::right);
  std::size_t rows = 0;
  for (const HashReport& report : reports) {
    for (const sim::HashCorrelation& of : report.lengths) {
      std::vector<std::string> fields;
      if (several) fields.push_back(report.trace);
      const bool both = of.trace.mean && of.noise.mean;
      for (const std::string& field :
           {std::to_string(of.bits), rounded(of.trace.mean), rounded(of.trace.spread), rounded(of.noise.mean),
            rounded(of.noise.spread),
            rounded(both ? std::optional(*of.trace.mean - *of.noise.mean) : std::nullopt),
            std::to_string(of.trace.defined), std::to_string(of.trace.undefined)})
        fields.push_back(field);
      table.add_row(fields);
      ++rows;
    }
  }
  table.print_head(out);
  for (std::size_t row = 0; row < rows; ++row) table.print_row(out, row);
  out << "\nCorrelation over positions: attention of the last prompt query, and 1 - Hamming distance / "
         "bits.\n"
         "Noise: normal queries and keys of the same shape.\n";
}

void write_json(std::ostream& out, const std::vector<HashReport>& reports,
                const std::vector<Inputs::TraceId>& traces, const sim::HashStudy& study) {
  std::vector<std::string> ids;
  for (const Inputs::TraceId& trace : traces) ids.push_back(json_trace(trace));
  std::string bits;
  for (const std::size_t length : study.bits) bits += (bits.empty() ? "" : ", ") + std::to_string(length);
  out << "{\n  \"schema_version\": " << kSchemaVersion << ",\n  \"inputs\": {\n"
      << "    \"analysis\": \"hash\",\n"
      << "    \"traces\": " << json_lines_list(ids, "    ") << ",\n"
      << "    \"bits\": [" << bits << "],\n"
      << "    \"projections\": " << study.projections << ",\n"
      << "    \"skip\": " << study.skip << ",\n"
      << "    \"seed\": " << study.seed << "\n  },\n"
      << "  \"results\": " << json_lines_list(json_objects(records_of(reports)), "  ") << "\n}\n";
}

}  // namespace

void write_hash_reports(std::ostream& out, Format format, const std::vector<HashReport>& reports,
                        const std::vector<Inputs::TraceId>& traces, const sim::HashStudy& study) {
  switch (format) {
    case Format::table:
      return write_table(out, reports);
    case Format::csv:
      return write_csv(out, records_of(reports));
    case Format::json:
      return write_json(out, reports, traces, study);
    case Format::jsonl:
      return write_jsonl(out, records_of(reports));
    case Format::md:
      return write_md(out, records_of(reports));
  }
  bug("unknown format");
}

}  // namespace kvsim::analysis
