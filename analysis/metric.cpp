#include "analysis/metric.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = {
      {"attention_loss", "attention loss", "share", Better::lower, true},
      {"output_error", "output error", "ratio", Better::lower, false},
      {"r", "importance retained", "share", Better::higher, true},
      {"isr", "importance retained per bit", "share per bit", Better::higher, true},
      {"oracle_cosine", "cosine to the per-step ideal", "ratio", Better::higher, false},
      {"attention_loss_oracle", "attention loss of the per-step oracle", "share", Better::neither, true},
      {"r_oracle", "importance the best set retains", "share", Better::neither, true},
      {"kept_tokens", "tokens held after the prompt", "tokens per lane", Better::neither, false},
      {"held_tokens", "tokens held at the end", "tokens per lane", Better::neither, false},
      {"kept_bytes", "bytes held after the prompt", "bytes", Better::neither, false},
  };
  return all;
}

const Metric& metric(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric& each : metrics()) {
    if (key == each.key) return each;
    known.emplace_back(each.key);
  }
  usage_error("unknown metric '" + std::string(key) + "'", "metrics", suggestion(key, known));
}

}  // namespace kvsim::analysis
