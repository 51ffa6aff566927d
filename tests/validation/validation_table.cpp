#include "tests/validation/validation_table.hpp"

#include <cmath>
#include <ostream>
#include <set>

#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/message_text.hpp"
#include "tests/validation/published.hpp"

namespace kvsim::analysis {
namespace {

using cost::Check;
using cost::Class;
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
  if (check.expected == Status::within || check.expected == Status::missed)
    text += " " + percent(check.tolerance);
  if (!cost::holds(check)) return "**not " + text + "**";
  if (check.evidence == cost::Evidence::recalled) return "recalled: " + text;
  return text;
}

/// Empty where nothing is claimed.
std::string class_text(const Check& check) {
  const Class of = cost::class_of(check);
  return of == Class::none ? "" : cost::class_name(of);
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
  return {
      source.name,
      check.quantity,
      check.published,
      static_cast<std::uint64_t>(check.digits),
      check.unit,
      have ? Value(check.ours) : Value(),
      have ? Value(cost::relative_error(check)) : Value(),
      check.expected == Status::within || check.expected == Status::missed ? Value(check.tolerance) : Value(),
      std::string(cost::status_name(check.expected)),
      std::string(cost::class_name(cost::class_of(check))),
      std::string(cost::evidence_name(check.evidence)),
      joined(check.rests_on, "; "),
      std::string(holds_text(check)),
      check.why};
}

constexpr const char* kHeading = R"(# Published numbers and ours

What papers, logs and READMEs print, and what the cost models of this folder answer to the same question. This page
is printed by `build/release/tests/cost_validation md`, which is built with the tests. A test fails when a row does not hold.

Every row that claims something is of one class, which follows from where the published number was read and from what
ours rests on. A row rests on a fit when it changes with what was fitted; machine files say which of their numbers were
fitted and to what.

- **printed**: read in the source, or in measurements it ships, and met by inputs of which none was fitted to anything.
- **held out**: read there, too; inputs were fitted, to other numbers only. Of measurements in order, the first, the
  third and so on are fitted to, the others are held out.
- **own arithmetic**: not printed there; what the source's formula or settings give by hand. Evidence of nothing but
  that the code does what its authors meant.
- **fitted**: some input was chosen from the numbers it is compared with. Shows how far a rule of so few constants can
  follow them, and proves nothing.

Its verdict is one of these:

- **exact**: equal in all digits the source prints. **within**: relative error at most that much; for printed and
  held-out rows an aim that was stated before: 3 % for sizes, 20 % for one matrix product and 8 % for the mean of many,
  12 % for passes, 15 % with weights or cache on the host and for served requests, 35 % by datasheet rates, one sequence
  for a batch. **at most**: not above the bound.
- **missed**: beyond that aim. **contradicted**: the source's own formula says otherwise; shown, not fitted to. **not
  derivable**: needs what no formula has. **recalled**: the published number, or a condition it was compared under, is
  known and was not read again; never asserted. None of these has a class.
- GB is 1e9 bytes and GiB 2^30. A source's unit is quoted as it stands; a note says when it means the other.

)";

void write_summary(std::ostream& out, const Records& summary) {
  out << "| source | entries | printed | held out | own arithmetic | fitted | missed | contradicted | not "
         "derivable "
         "| recalled | mean error of held-out times | aim | of fitted times |\n| --- |"
      << " ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  const std::size_t first = summary.column("held_out_error"), failed = summary.column("failed"),
                    exact = summary.column("printed_exact");
  for (const std::vector<Value>& row : summary.rows) {
    for (std::size_t column = 0; column < failed; ++column)
      if (column != exact) out << "| " << exact_field(row[column], "") << ' ';
    for (std::size_t column = first; column < row.size(); ++column) {
      const std::optional<double> per_cent = number(row[column]);
      out << "| " << (column == first + 1 && per_cent ? "<= " : "")
          << (per_cent ? percent(*per_cent / 100) : "") << ' ';
    }
    out << "|\n";
  }
  out << "\nOf the printed ones " << exact_field(summary.rows.back()[exact], "")
      << " are met in every digit, the others within an aim or below a bound.\n";
}

void write_source(std::ostream& out, const Source& source, const std::vector<Check>& checks) {
  out << "\n## " << source.name << "\n\n" << source.paper << ".\n\n";
  for (const std::string& assumption : source.assumptions) out << "- " << assumption << '\n';
  std::set<std::string> fits;
  for (const Check& check : checks) fits.insert(check.rests_on.begin(), check.rests_on.end());
  if (!fits.empty())
    out << "- Rows rest on numbers fitted to: " << joined({fits.begin(), fits.end()}, "; ") << ".\n";
  if (const std::optional<double> error = cost::mean_time_error(checks, Class::held_out))
    out << "- Mean absolute relative error of its held-out times: " << percent(*error)
        << (source.held_out_error ? "; at most " + percent(*source.held_out_error) + " is asserted.\n"
                                  : ", the missed ones included: none is asserted.\n");
  if (const std::optional<double> error = cost::mean_time_error(checks, Class::fitted))
    out << "- Of its fitted times: " << percent(*error) << ".\n";
  out << "\n| quantity | published | ours | error | class | verdict | note |\n| --- | --- | --- | --- | --- "
         "| --- | "
         "--- |\n";
  for (const Check& check : checks)
    out << "| " << check.quantity << " | " << printed(check) << " | " << ours_text(check) << " | "
        << error_text(check) << " | " << class_text(check) << " | " << verdict(check) << " | " << check.why
        << " |\n";
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
                     {"tolerance", "", "of what is expected within one, or missed it"},
                     {"expected", "", "exact, within, missed, at most, contradicted or not derivable"},
                     {"class", "", "printed, held out, own arithmetic, fitted; none: nothing is claimed"},
                     {"evidence", "", "verified in the source, derived from its formula, or recalled"},
                     {"rests_on", "", "measurements to which numbers were fitted that ours changes with"},
                     {"holds", "", "yes, no, or not asserted"},
                     {"note", "", "assumption made, or why it cannot be had or contradicts"}};
  for (const Source& source : cost::validation_sources())
    for (const Check& check : cost::checks_of(source, policies))
      records.rows.push_back(row_of(source, check));
  return records;
}

Records validation_summary(const policy::Registry& policies) {
  Records records;
  records.columns = {{"source", "", "where the numbers were published"},
                     {"entries", "", "numbers compared"},
                     {"printed", "", "met, and nothing was fitted"},
                     {"printed_exact", "", "of these: equal as far as the source prints digits"},
                     {"held_out", "", "met, and what was fitted was fitted to other numbers"},
                     {"own_arithmetic", "", "numbers of ours"},
                     {"fitted", "", "inputs were chosen from them"},
                     {"missed", "", "not within the aim stated for them"},
                     {"contradicted", "", "by the source's own formula"},
                     {"not_derivable", "", "by any formula"},
                     {"recalled", "", "not read again: shown, not asserted"},
                     {"failed", "", "that do not hold"},
                     {"held_out_error", "%", "mean absolute relative error of held-out times"},
                     {"held_out_error_aim", "%", "what it may be at most"},
                     {"fitted_error", "%", "the same of fitted times"}};
  const auto per_cent = [](const std::optional<double>& share) {
    return share ? Value(std::round(1000 * *share) / 10) : Value();
  };
  for (const Source& source : cost::validation_sources()) {
    const std::vector<Check> checks = cost::checks_of(source, policies);
    const cost::Tally counts = cost::tally(checks);
    records.rows.push_back(
        {source.name, value(counts.entries), value(counts.printed), value(counts.printed_exact),
         value(counts.held_out), value(counts.own_arithmetic), value(counts.fitted), value(counts.missed),
         value(counts.contradicted), value(counts.not_derivable), value(counts.recalled),
         value(counts.failed), per_cent(cost::mean_time_error(checks, Class::held_out)),
         per_cent(source.held_out_error), per_cent(cost::mean_time_error(checks, Class::fitted))});
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
  const std::size_t counted = summary.column("held_out_error");
  TextTable table;
  table.add_column("source", Align::left);
  for (const char* heading : {"rows", "printed", "(exact)", "held out", "own arith- metic", "fitted",
                              "missed", "contra- dicted", "not deriv- able", "re- called", "failed"})
    table.add_column(heading, Align::right);
  for (const char* heading : {"held-out times: error %", "aim %", "fitted times: error %"})
    table.add_column(heading, Align::point);
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
    for (const Check& check : cost::checks_of(source, policies)) {
      const bool mean = check.held_out && check.expected == Status::at_most;
      if (mean)
        out << source.name << ": " << check.quantity << ": " << ours_text(check) << " %, aim "
            << printed(check) << '\n';
      if (!cost::holds(check))
        out << source.name << ": " << check.quantity << ": published " << printed(check) << ", ours "
            << ours_text(check) << ", expected " << cost::status_name(check.expected) << '\n';
    }
  out << "\nerrors: mean, absolute, relative; classes and every entry: with the argument md or csv\n";
}

void write_validation_page(std::ostream& out, const policy::Registry& policies) {
  out << kHeading;
  write_summary(out, validation_summary(policies));
  for (const Source& source : cost::validation_sources())
    write_source(out, source, cost::checks_of(source, policies));
}

bool validated(const policy::Registry& policies) {
  for (const Source& source : cost::validation_sources()) {
    const std::vector<Check> checks = cost::checks_of(source, policies);
    if (cost::tally(checks).failed > 0) return false;
    const std::optional<double> error = cost::mean_time_error(checks, Class::held_out);
    if (error && source.held_out_error && *error > *source.held_out_error) return false;
  }
  return true;
}

}  // namespace kvsim::analysis
