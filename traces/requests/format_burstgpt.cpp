// BurstGPT's csv (Wang et al., KDD 2025; HPMLL/BurstGPT): arrivals, lengths and, from version 1.2 on,
// sessions.
#include "traces/requests/csv_columns.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

enum : std::size_t { kTime, kPrompt, kGenerated, kSession, kLog };

class Reader : public LineReader {
 public:
  bool has_header() const override { return true; }
  void read_header(std::string_view line, const std::string& where) override {
    columns_.read_header(line, where);
  }
  void read(std::string_view line, TraceBuilder& out) override {
    const std::string where = out.where();
    columns_.read(line, where);
    Request request{.time_s = columns_.number<double>(kTime, where)};
    if (columns_.has(kLog)) request.category = out.category(columns_.text(kLog));
    const bool in_session = columns_.has(kSession) && !columns_.text(kSession).empty();
    if (in_session) {
      request.session = out.session(columns_.text(kSession));
      if (last_.size() <= request.session) last_.resize(request.session + 1, kNone);
      request.parent = last_[request.session];
      request.turn = request.parent == kNone ? 1 : out.trace().requests[request.parent].turn + 1;
    }
    const std::uint32_t number = out.add(request, columns_.number<std::uint64_t>(kPrompt, where),
                                         columns_.number<std::uint64_t>(kGenerated, where), nullptr);
    if (in_session) last_[request.session] = number;
  }

 private:
  CsvColumns columns_{
      {{"Timestamp"}, {"Request tokens"}, {"Response tokens"}, {"Session ID", false}, {"Log Type", false}}};
  std::vector<std::uint32_t> last_;  ///< request of each session
};

}  // namespace

LineFormat burstgpt_format() {
  return {
      .said = {"burstgpt", "csv with Timestamp (s), Session ID, Request tokens, Response tokens, Log Type",
               false},
      .defaults = {},
      .recognises =
          [](const auto& names) {
            return has_names(names, {"Timestamp", "Request tokens"});
          },
      .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> { return std::make_unique<Reader>(); }};
}

}  // namespace kvsim::requests
