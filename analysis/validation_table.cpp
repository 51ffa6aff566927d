#include "analysis/validation_table.hpp"

#include <cmath>
#include <ostream>

#include "analysis/numbers.hpp"
#include "analysis/text_table.hpp"
#include "sim/cost/validation/published.hpp"

namespace kvsim::analysis {
namespace {

using cost::Check;
using cost::Source;
using cost::Status;

/// Four digits, at least those that the source prints.
std::string ours_text(const Check& check) {
  if (!std::isfinite(check.ours)) return "-";
  if (check.expected == Status::exact) return fixed_text(check.ours, check.digits);
  const double size = std::abs(check.ours);
  const int whole = size < 1 ? 0 : static_cast<int>(std::log10(size)) + 1;
  return fixed_text(check.ours, std::max(check.digits, 4 - whole));
}

std::string percent(double share) {
  return fixed_text(100 * share, 1) + " %";
}

std::string error_text(const Check& check) {
  if (!std::isfinite(check.ours)) return "-";
  if (check.expected == Status::exact) return "0";
  if (check.expected == Status::at_most) return "-";
  const double error = cost::relative_error(check);
  return (error < 0 ? "" : "+") + percent(error);
}

std::string verdict(const Check& check) {
  std::string text = cost::status_name(check.expected);
  if (check.expected == Status::within) text += " " + percent(check.tolerance);
  if (!cost::holds(check)) return "**not " + text + "**";
  if (check.evidence == cost::Evidence::recalled) return "shown: " + text;
  if (check.evidence == cost::Evidence::derived) return text + ", derived";
  return text;
}

std::string printed(const Check& check) {
  return fixed_text(check.published, check.digits) + (check.unit.empty() ? "" : " " + check.unit);
}

Value value(std::size_t count) {
  return static_cast<std::uint64_t>(count);
}

const char* holds_text(const Check& check) {
  if (!cost::asserted(check)) return "not asserted";
  return cost::holds(check) ? "yes" : "no";
}

std::vector<Value> row_of(const Source& source, const Check& check) {
  const bool have = std::isfinite(check.ours);
  return {source.name,
          check.quantity,
          check.published,
          static_cast<std::uint64_t>(check.digits),
          check.unit,
          have ? Value(check.ours) : Value(),
          have ? Value(cost::relative_error(check)) : Value(),
          check.expected == Status::within ? Value(check.tolerance) : Value(),
          std::string(cost::status_name(check.expected)),
          std::string(cost::evidence_name(check.evidence)),
          std::string(holds_text(check)),
          check.why};
}

constexpr const char* kHeading = R"(# Published numbers and ours

What papers, logs and READMEs print, and what the cost models of this folder answer to the same question. This page
is written by

```console
$ kvsim cost validate --format md -o sim/cost/VALIDATION.md --overwrite
```

A test compares the page with the command's; another computes every row anew and fails when one does not hold.

- **exact**: equal in all digits the source prints. **within**: relative error at most that much. **at most**: not
  above the printed bound.
- **contradicted**: the source's own formula says otherwise; shown, not fitted to. **not derivable**: needs what no
  formula has.
- **derived**: not printed there; what the source's formula or settings give by hand. All others were read in the
  source, or in measurements it ships.
- **shown**: the published number, or a condition it was compared under, is recalled and not read again; never
  asserted.
- GB is 1e9 bytes and GiB 2^30. A source's unit is quoted as it stands; a note says when it means the other.

)";

void write_summary(std::ostream& out, const Records& summary) {
  out << "| source | entries | exact | within | at most | contradicted | not derivable | derived | recalled "
         "| mean error of times | asserted |\n| --- |"
      << " ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  const std::size_t error = summary.column("time_error"), failed = summary.column("failed");
  for (const std::vector<Value>& row : summary.rows) {
    for (std::size_t column = 0; column < failed; ++column)
      out << "| " << exact_field(row[column], "") << ' ';
    for (const std::size_t column : {error, error + 1}) {
      const std::optional<double> per_cent = number(row[column]);
      out << "| " << (column > error && per_cent ? "<= " : "") << (per_cent ? percent(*per_cent / 100) : "")
          << ' ';
    }
    out << "|\n";
  }
}

void write_source(std::ostream& out, const Source& source, const std::vector<Check>& checks) {
  out << "\n## " << source.name << "\n\n" << source.paper << ".\n\n";
  for (const std::string& assumption : source.assumptions) out << "- " << assumption << '\n';
  if (const std::optional<double> error = cost::mean_time_error(checks))
    out << "- Mean absolute relative error of its times: " << percent(*error) << "; at most "
        << percent(source.time_error.value()) << " is asserted.\n";
  out << "\n| quantity | published | ours | error | verdict | note |\n| --- | --- | --- | --- | --- | --- "
         "|\n";
  for (const Check& check : checks)
    out << "| " << check.quantity << " | " << printed(check) << " | " << ours_text(check) << " | "
        << error_text(check) << " | " << verdict(check) << " | " << check.why << " |\n";
}

}  // namespace

Records validation_records(const policy::Registry& policies) {
  Records records;
  records.columns = {{"source", "", "where the number was published"},
                     {"quantity", "", "what, and under which conditions"},
                     {"published", "", "in the unit the source prints"},
                     {"digits", "", "decimals the source prints"},
                     {"unit", "", "as printed; note says when GB means GiB"},
                     {"ours", "", "in that unit; undefined if it cannot be derived"},
                     {"relative_error", "", "(ours - published) / published"},
                     {"tolerance", "", "of what is expected within one"},
                     {"expected", "", "exact, within, at most, contradicted or not derivable"},
                     {"evidence", "", "verified in the source, derived from its formula, or recalled"},
                     {"holds", "", "yes, no, or not asserted"},
                     {"note", "", "assumption made, or why it cannot be had or contradicts"}};
  for (const Source& source : cost::validation_sources())
    for (const Check& check : source.checks(policies)) records.rows.push_back(row_of(source, check));
  return records;
}

Records validation_summary(const policy::Registry& policies) {
  Records records;
  records.columns = {
      {"source", "", "where the numbers were published"},
      {"entries", "", "numbers compared"},
      {"exact", "", "equal as far as the source prints digits"},
      {"within", "", "within their tolerance"},
      {"at_most", "", "not above their bound"},
      {"contradicted", "", "by the source's own formula"},
      {"not_derivable", "", "by any formula"},
      {"derived", "", "of all these: not printed, but what the source's formula or settings give"},
      {"recalled", "", "of all these: shown, not asserted"},
      {"failed", "", "that do not hold"},
      {"time_error", "%", "mean absolute relative error of the times within tolerances"},
      {"time_error_bound", "%", "what it may be at most"}};
  const auto per_cent = [](const std::optional<double>& share) {
    return share ? Value(std::round(1000 * *share) / 10) : Value();
  };
  for (const Source& source : cost::validation_sources()) {
    const std::vector<Check> checks = source.checks(policies);
    const cost::Tally counts = cost::tally(checks);
    records.rows.push_back({source.name, value(counts.entries), value(counts.exact), value(counts.within),
                            value(counts.at_most), value(counts.contradicted), value(counts.not_derivable),
                            value(counts.derived), value(counts.recalled), value(counts.failed),
                            per_cent(cost::mean_time_error(checks)), per_cent(source.time_error)});
  }
  std::vector<Value> total{std::string("all")};
  for (std::size_t column = 1; column <= records.column("failed"); ++column) {
    std::uint64_t sum = 0;
    for (const std::vector<Value>& row : records.rows) sum += std::get<std::uint64_t>(row[column]);
    total.emplace_back(sum);
  }
  total.resize(records.columns.size());
  records.rows.push_back(std::move(total));
  return records;
}

void write_validation_table(std::ostream& out, const policy::Registry& policies) {
  const Records summary = validation_summary(policies);
  const std::size_t counted = summary.column("time_error");
  TextTable table;
  table.add_column("source", Align::left);
  for (const char* heading : {"rows", "exact", "within", "at most", "contra- dicted", "not deriv- able",
                              "derived", "re- called", "failed"})
    table.add_column(heading, Align::right);
  table.add_column("error of times %", Align::point);
  table.add_column("at most %", Align::point);
  for (const std::vector<Value>& row : summary.rows) {
    std::vector<std::string> fields;
    for (std::size_t column = 0; column < counted; ++column) fields.push_back(exact_field(row[column], "-"));
    for (std::size_t column = counted; column < row.size(); ++column) {
      const std::optional<double> per_cent = number(row[column]);
      fields.push_back(per_cent ? fixed_text(*per_cent, 1) : "-");
    }
    table.add_row(fields);
  }
  table.print_head(out);
  for (std::size_t row = 0; row < summary.rows.size(); ++row) table.print_row(out, row);
  out << '\n';
  for (const Source& source : cost::validation_sources())
    for (const Check& check : source.checks(policies))
      if (!cost::holds(check))
        out << source.name << ": " << check.quantity << ": published " << printed(check) << ", ours "
            << ours_text(check) << ", expected " << cost::status_name(check.expected) << '\n';
  out << "error of times: mean, absolute; derived and recalled are of the others: sim/cost/VALIDATION.md\n"
         "every entry: --format md (that page), csv or json\n";
}

void write_validation_page(std::ostream& out, const policy::Registry& policies) {
  out << kHeading;
  write_summary(out, validation_summary(policies));
  for (const Source& source : cost::validation_sources()) write_source(out, source, source.checks(policies));
}

bool validated(const policy::Registry& policies) {
  for (const Source& source : cost::validation_sources()) {
    const std::vector<Check> checks = source.checks(policies);
    if (cost::tally(checks).failed > 0) return false;
    const std::optional<double> error = cost::mean_time_error(checks);
    if (error && *error > source.time_error.value_or(0)) return false;
  }
  return true;
}

}  // namespace kvsim::analysis
