// BurstGPT's csv (Wang et al., KDD 2025; HPMLL/BurstGPT): arrivals, lengths and, from version 1.2 on,
// sessions.
#include "traces/requests/csv_columns.hpp"

namespace kvsim::requests {
namespace {

class BurstgptReader : public CsvReader {
 public:
  enum Column : std::size_t { kTime, kPrompt, kGenerated, kSession, kLog };

  BurstgptReader()
      : CsvReader({{"Timestamp"},
                   {"Request tokens"},
                   {"Response tokens"},
                   {"Session ID", false},
                   {"Log Type", false}}) {}

 protected:
  void read_row(const CsvColumns& row, const std::string& where, TraceBuilder& out) override {
    Request request{.time_s = row.number<double>(kTime, where)};
    if (row.has(kLog)) request.category = out.category(row.text(kLog));
    if (row.has(kSession) && !row.text(kSession).empty()) out.continue_session(request, row.text(kSession));
    out.add(request, row.number<std::uint64_t>(kPrompt, where), row.number<std::uint64_t>(kGenerated, where),
            nullptr);
  }
};

}  // namespace

LineFormat burstgpt_format() {
  return {.said = {"burstgpt",
                   "csv with Timestamp (s), Session ID, Request tokens, Response tokens, Log Type", false},
          .defaults = {},
          .recognises =
              [](const auto& names) {
                return has_names(names, {"Timestamp", "Request tokens"});
              },
          .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> {
            return std::make_unique<BurstgptReader>();
          }};
}

}  // namespace kvsim::requests
