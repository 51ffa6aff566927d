// Vidur's processed traces (Agrawal et al., MLSys 2024): arrivals and lengths alone.
#include "traces/requests/csv_columns.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

enum : std::size_t { kTime, kPrompt, kGenerated };

class Reader : public LineReader {
 public:
  bool has_header() const override { return true; }
  void read_header(std::string_view line, const std::string& where) override {
    columns_.read_header(line, where);
  }
  void read(std::string_view line, TraceBuilder& out) override {
    const std::string where = out.where();
    columns_.read(line, where);
    out.add({.time_s = columns_.number<double>(kTime, where)}, columns_.number<std::uint64_t>(kPrompt, where),
            columns_.number<std::uint64_t>(kGenerated, where), nullptr);
  }

 private:
  CsvColumns columns_{{{"arrived_at"}, {"num_prefill_tokens"}, {"num_decode_tokens"}}};
};

}  // namespace

LineFormat vidur_format() {
  return {
      .said = {"vidur", "csv with arrived_at (s), num_prefill_tokens, num_decode_tokens", false},
      .defaults = {},
      .recognises =
          [](const auto& names) {
            return has_names(names, {"arrived_at", "num_prefill_tokens"});
          },
      .reader = [](const ReadOptions&) -> std::unique_ptr<LineReader> { return std::make_unique<Reader>(); }};
}

}  // namespace kvsim::requests
