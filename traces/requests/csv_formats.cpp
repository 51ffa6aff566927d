// Formats of requests that are csv files: when each came, how long it was, which session it belongs to.
#include "traces/requests/csv_columns.hpp"
#include "traces/requests/line_format.hpp"
#include "traces/requests/time_text.hpp"

namespace kvsim::requests {
namespace {

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
