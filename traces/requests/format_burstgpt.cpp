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
    const bool in_session = row.has(kSession) && !row.text(kSession).empty();
    if (in_session) {
      request.session = out.session(row.text(kSession));
      if (last_.size() <= request.session) last_.resize(request.session + 1, kNone);
      request.parent = last_[request.session];
      request.turn = request.parent == kNone ? 1 : out.trace().requests[request.parent].turn + 1;
    }
    const std::uint32_t number = out.add(request, row.number<std::uint64_t>(kPrompt, where),
                                         row.number<std::uint64_t>(kGenerated, where), nullptr);
    if (in_session) last_[request.session] = number;
  }

 private:
  std::vector<std::uint32_t> last_;  ///< request of each session
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
