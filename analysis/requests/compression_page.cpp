#include "analysis/requests/compression_page.hpp"

#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

std::string right_text(const CompressionRow& row) {
  if (!row.right) return "-";
  std::string out = fixed_text(100 * row.right->mean, 1);
  if (row.right->low)
    out += " (" + fixed_text(100 * *row.right->low, 0) + "-" + fixed_text(100 * *row.right->high, 0) + ")";
  return out;
}

std::vector<Shown<CompressionRow>> shown_columns(const CompressionGrid& grid) {
  using Row = CompressionRow;
  std::vector<Shown<Row>> out;
  if (grid.serving.rates.size() > 1)
    out.push_back({"rate", Align::point, [](const Row& row) { return rounded_text(row.run.settings.rate); }});
  const std::vector<Shown<Row>> always{
      {"memory", Align::right, [](const Row& row) { return bytes_text(row.run.memory); }},
      {"keeping", Align::left, [](const Row& row) { return std::string(keeping_name(row.keeping)); }},
      {"policy", Align::left, compression_label},
      {"KiB a token", Align::point, [](const Row& row) { return fixed_text(row.token_bytes / 1024, 1); }},
      {"hits %", Align::point, [](const Row& row) { return real_text(100 * row.run.summary.hit_rate, 1); }},
      {"TTFT p50 s", Align::point, [](const Row& row) { return real_text(row.run.summary.ttft.p50, 2); }},
      {"TTFT p99 s", Align::point, [](const Row& row) { return real_text(row.run.summary.ttft.p99, 2); }},
      {"TPOT mean ms", Align::point,
       [](const Row& row) { return real_text(1e3 * row.run.summary.tpot.mean, 1); }},
      {"requests /s", Align::point,
       [](const Row& row) { return real_text(row.run.summary.requests_per_second, 3); }},
      {"running", Align::point, [](const Row& row) { return real_text(row.run.summary.running, 1); }}};
  out.insert(out.end(), always.begin(), always.end());
  if (grid.serving.slo.any())
    out.push_back({"good %", Align::point, [](const Row& row) {
                     return real_text(100 * row.run.summary.good_share.value_or(0), 1);
                   }});
  if (grid.answers) out.push_back({"right % (95%)", Align::left, right_text});
  return out;
}

constexpr const char* kRests[] = {
    "A compressed cache holds a token in the bytes that it takes of a prompt of the trace's mean length; a "
    "decoding step reads these bytes.",
    "Compressed with the question known, what is kept suits one request alone. Compressed before the "
    "question is "
    "known, what is kept of a block is taken not to depend on what follows it: it is made once, and later "
    "prompts "
    "find it.",
    "A prompt is computed with its tokens as they come, those found included, which is an upper limit of its "
    "attention where they are compressed."};

std::string answers_text(const CompressionGrid& grid) {
  if (!grid.answers) return "No answers are joined: kvsim evaluate makes them, --answers names them.";
  const std::vector<std::string> models = distinct(*grid.answers, "model");
  return "Answers are those of " + joined(models) +
         " at cut `prompt` (compressed, and full caches) and `question` "
         "(compressed and shared); their prompts are not those of the traffic.";
}

}  // namespace

std::string compression_label(const CompressionRow& row) {
  if (row.policy == nullptr) return "-";
  return row.policy->name + (row.budget.empty() ? "" : " " + row.budget);
}

void write_compression_table(std::ostream& out, const CompressionGrid& grid,
                             const std::vector<CompressionRow>& rows) {
  out << "model    " << described(grid.serving.served.model) << "\nmachine  "
      << described(grid.serving.served.machine) << "\n\n";
  shown_table(shown_columns(grid), rows, [](const std::string&, const std::string&) {}).print(out);
  out << '\n' << answers_text(grid) << '\n';
}

void write_compression_page(std::ostream& out, const CompressionGrid& grid,
                            const std::vector<CompressionRow>& rows, const std::string& file) {
  out << "# Compression against reuse\n\nOne traffic (`" << file << "`) on engines that serve "
      << described(grid.serving.served.model) << ", on " << described(grid.serving.served.machine)
      << ". All have the same memory for keys and values. They keep them as they come, for one request "
         "(neither) or for later prompts, too (shared: prefix caching); compressed, for one request "
         "(compressed); or compressed, for later prompts, too (compressed and shared).\n\n";
  const std::vector<Shown<CompressionRow>> columns = shown_columns(grid);
  out << '|';
  for (const Shown<CompressionRow>& column : columns) out << ' ' << column.heading << " |";
  out << "\n|";
  for (const Shown<CompressionRow>& column : columns)
    out << (column.align == Align::left ? " --- |" : " ---: |");
  out << '\n';
  for (const CompressionRow& row : rows) {
    out << '|';
    for (const Shown<CompressionRow>& column : columns) out << ' ' << column.text(row) << " |";
    out << '\n';
  }
  out << "\nWhat this rests on:\n\n";
  for (const char* each : kRests) out << "- " << each << '\n';
  out << "- " << answers_text(grid) << '\n';
}

}  // namespace kvsim::analysis
