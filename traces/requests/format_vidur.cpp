// Vidur's processed traces (Agrawal et al., MLSys 2024): arrivals and lengths alone.
#include "traces/requests/csv_columns.hpp"

namespace kvsim::requests {
namespace {

class VidurReader : public CsvReader {
 public:
  enum Column : std::size_t { kTime, kPrompt, kGenerated };

  VidurReader() : CsvReader({{"arrived_at"}, {"num_prefill_tokens"}, {"num_decode_tokens"}}) {}

 protected:
  void read_row(const CsvColumns& row, const std::string& where, TraceBuilder& out) override {
    out.add({.time_s = row.number<double>(kTime, where)}, row.number<std::uint64_t>(kPrompt, where),
            row.number<std::uint64_t>(kGenerated, where), nullptr);
  }
};

}  // namespace

LineFormat vidur_format() {
  return {.said = {"vidur", "csv with arrived_at (s), num_prefill_tokens, num_decode_tokens", false},
          .defaults = {},
          .recognises =
              [](const auto& names) {
                return has_names(names, {"arrived_at", "num_prefill_tokens"});
              },
          .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> {
            return std::make_unique<VidurReader>();
          }};
}

}  // namespace kvsim::requests
