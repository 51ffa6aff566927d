// Azure's traces of LLM inference of 2023 and 2024 (Patel et al., Splitwise; Stojkovic et al., DynamoLLM):
// arrivals and lengths alone.
#include "traces/requests/csv_columns.hpp"
#include "traces/requests/time_text.hpp"

namespace kvsim::requests {
namespace {

class AzureReader : public CsvReader {
 public:
  enum Column : std::size_t { kTime, kPrompt, kGenerated };

  AzureReader() : CsvReader({{"TIMESTAMP"}, {"ContextTokens"}, {"GeneratedTokens"}}) {}

 protected:
  void read_row(const CsvColumns& row, const std::string& where, TraceBuilder& out) override {
    const std::optional<double> time = seconds_of(row.text(kTime));
    if (!time)
      input_error("TIMESTAMP is " + in_quotes(row.text(kTime)) + ", no time like 2024-05-10 00:00:00.009930",
                  where);
    out.add({.time_s = *time}, row.number<std::uint64_t>(kPrompt, where),
            row.number<std::uint64_t>(kGenerated, where), nullptr);
  }
};

}  // namespace

LineFormat azure_format() {
  return {.said = {"azure", "csv with TIMESTAMP, ContextTokens, GeneratedTokens (2023, 2024)", false},
          .defaults = {.from_first = true},
          .recognises =
              [](const auto& names) {
                return has_names(names, {"TIMESTAMP", "ContextTokens"});
              },
          .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> {
            return std::make_unique<AzureReader>();
          }};
}

}  // namespace kvsim::requests
