// Formats of requests that are csv files: when each came, how long it was, which session it belongs to.
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

/// Lines of a csv file in ASCII by the names of their columns. Fields may stand in double quotes.
class CsvColumns {
 public:
  struct Column {
    std::string_view name;
    bool required = true;
  };
  explicit CsvColumns(std::vector<Column> wanted) : wanted_(std::move(wanted)) {}

  /// Throws Error(input) at `where` for a column that is missing or there twice.
  void read_header(std::string_view line, const std::string& where);
  /// Throws Error(input) for a line of another number of fields.
  void read(std::string_view line, const std::string& where);

  bool has(std::size_t column) const { return places_[column] >= 0; }
  /// The field of the line that was read last, without quotes.
  std::string_view text(std::size_t column) const {
    return fields_[static_cast<std::size_t>(places_[column])];
  }
  /// Throws Error(input) for what is no number of this type.
  template <class T>
  T number(std::size_t column, const std::string& where) const {
    const auto value = number_of<T>(text(column));
    if (!value)
      input_error(std::string(wanted_[column].name) + " is " + in_quotes(text(column)) +
                      (std::is_integral_v<T> ? ", no whole number from 0" : ", no number"),
                  where);
    return *value;
  }

 private:
  void split_fields(std::string_view line, const std::string& where);

  std::vector<Column> wanted_;
  std::vector<int> places_;  ///< of the wanted columns; -1: the file has it not
  std::size_t columns_ = 0;
  std::vector<std::string_view> fields_;
};

void CsvColumns::split_fields(std::string_view line, const std::string& where) {
  for (const char c : line)
    if ((c < 0x20 && c != '\t') || c > 0x7e)
      input_error("has a byte that is no printable ASCII", where, "The csv formats of requests are ASCII.");
  fields_.clear();
  std::size_t begin = 0;
  while (true) {
    std::size_t end = begin;
    if (begin < line.size() && line[begin] == '"') {
      const std::size_t close = line.find('"', begin + 1);
      if (close == std::string_view::npos || (close + 1 < line.size() && line[close + 1] != ','))
        input_error("has a quote that is not closed at the end of its field", where);
      fields_.push_back(line.substr(begin + 1, close - begin - 1));
      end = close + 1;
    } else {
      end = std::min(line.find(',', begin), line.size());
      fields_.push_back(trimmed(line.substr(begin, end - begin)));
    }
    if (end >= line.size()) return;
    begin = end + 1;
  }
}

void CsvColumns::read_header(std::string_view line, const std::string& where) {
  split_fields(line, where);
  columns_ = fields_.size();
  places_.clear();
  for (const Column& column : wanted_) {
    int place = -1;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i] != column.name) continue;
      if (place >= 0) input_error("the column " + in_quotes(column.name) + " is there twice", where);
      place = static_cast<int>(i);
    }
    if (place < 0 && column.required)
      input_error("has no column " + in_quotes(column.name), where,
                  suggestion(column.name, {fields_.begin(), fields_.end()}));
    places_.push_back(place);
  }
}

void CsvColumns::read(std::string_view line, const std::string& where) {
  split_fields(line, where);
  if (fields_.size() != columns_)
    input_error(
        "has " + std::to_string(fields_.size()) + " fields under " + std::to_string(columns_) + " columns",
        where);
}

enum class Times { seconds, dates, either };

/// What the columns are called; empty: the format has none of that.
struct Names {
  std::string time, prompt, generated;
  Times times = Times::seconds;
  std::string session{}, category{};
};

class TableReader final : public LineReader {
 public:
  explicit TableReader(Names names) : names_(std::move(names)), columns_(wanted(names_)) {}

  bool has_header() const override { return true; }
  void read_header(std::string_view line, const std::string& where) override {
    columns_.read_header(line, where);
  }
  void read(std::string_view line, TraceBuilder& out) override {
    const std::string where = out.where();
    columns_.read(line, where);
    Request request{.time_s = seconds(where)};
    if (!names_.category.empty() && columns_.has(kCategory))
      request.category = out.category(columns_.text(kCategory));
    if (!names_.session.empty() && columns_.has(kSession) && !columns_.text(kSession).empty())
      out.continue_session(request, columns_.text(kSession));
    out.add(request, columns_.number<std::uint64_t>(kPrompt, where),
            columns_.number<std::uint64_t>(kGenerated, where), nullptr);
  }

 private:
  enum Column : std::size_t { kTime, kPrompt, kGenerated, kSession, kCategory };

  static std::vector<CsvColumns::Column> wanted(const Names& names) {
    std::vector<CsvColumns::Column> out{{names.time}, {names.prompt}, {names.generated}};
    if (!names.session.empty()) out.push_back({names.session, false});
    if (!names.category.empty()) out.push_back({names.category, false});
    return out;
  }

  double seconds(const std::string& where) const {
    if (names_.times == Times::seconds) return columns_.number<double>(kTime, where);
    if (names_.times == Times::either) return seconds_at(columns_.text(kTime), names_.time, where);
    const std::optional<double> time = seconds_of(columns_.text(kTime));
    if (!time)
      input_error(names_.time + " is " + in_quotes(columns_.text(kTime)) +
                      ", no time like 2024-05-10 00:00:00.009930",
                  where);
    return *time;
  }

  const Names names_;
  CsvColumns columns_;
};

LineFormat table(RequestFormat said, FormatDefaults defaults, std::vector<std::string_view> shown_by,
                 Names names) {
  LineFormat format;
  format.said = std::move(said);
  format.defaults = defaults;
  format.shown_by.push_back(std::move(shown_by));
  format.reader = [names](const ReadOptions&) { return std::make_unique<TableReader>(names); };
  return format;
}

/// One's own: another file may have columns of these names, so it is read so only where that is said.
LineFormat own_csv_format() {
  LineFormat format;
  format.said = {"csv", "Your own csv: columns time (s, or a date), prompt, output (tokens), session", false};
  format.defaults = {.from_first = true};
  format.reader = [](const ReadOptions& options) {
    const auto name = [&](const char* field) { return std::string(own_name(options, field)); };
    return std::make_unique<TableReader>(
        Names{name("time"), name("prompt"), name("output"), Times::either, name("session")});
  };
  return format;
}

}  // namespace

std::vector<LineFormat> csv_formats() {
  return {
      // Azure's traces of LLM inference of 2023 and 2024 (Patel et al., Splitwise; Stojkovic et al.,
      // DynamoLLM).
      table({"azure", "csv with TIMESTAMP, ContextTokens, GeneratedTokens (2023, 2024)", false},
            {.from_first = true}, {"TIMESTAMP", "ContextTokens"},
            {"TIMESTAMP", "ContextTokens", "GeneratedTokens", Times::dates}),
      // Wang et al., KDD 2025; HPMLL/BurstGPT. Sessions are there from version 1.2 on.
      table({"burstgpt", "csv with Timestamp (s), Session ID, Request tokens, Response tokens, Log Type",
             false},
            {}, {"Timestamp", "Request tokens"},
            {"Timestamp", "Request tokens", "Response tokens", Times::seconds, "Session ID", "Log Type"}),
      // Vidur's processed traces (Agrawal et al., MLSys 2024).
      table({"vidur", "csv with arrived_at (s), num_prefill_tokens, num_decode_tokens", false}, {},
            {"arrived_at", "num_prefill_tokens"}, {"arrived_at", "num_prefill_tokens", "num_decode_tokens"}),
      own_csv_format()};
}

}  // namespace kvsim::requests
