#include "analysis/results/metric.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> all = {
      {"evidence_loss", "evidence loss", "share", Better::lower, true},
      {"peak_loss", "peak loss", "share", Better::lower, true},
      {"attention_loss", "attention loss", "share", Better::lower, true},
      {"output_error", "output error", "ratio", Better::lower, false},
      {"projected_output_error", "output error after projection", "ratio", Better::lower, false},
      {"evidence_held", "evidence held", "share", Better::higher, true},
      {"evidence_nowhere", "evidence held in no lane", "share", Better::lower, true},
      {"output_cosine", "cosine of outputs", "ratio", Better::higher, false},
      {"projected_output_cosine", "cosine of outputs after projection", "ratio", Better::higher, false},
      {"peak_loss_weighted", "peak loss, rows weighted by their peak", "share", Better::lower, true},
      {"peak_loss_low", "peak loss, lower threshold", "share", Better::lower, true},
      {"peak_loss_by_head", "peak loss, mean over heads", "share", Better::lower, true},
      {"peak_loss_output", "peak loss times output error", "ratio", Better::lower, false},
      {"r", "importance retained", "share", Better::higher, true},
      {"isr", "importance retained per bit", "share per bit", Better::higher, true},
      {"oracle_cosine", "cosine to the per-step ideal", "ratio", Better::higher, false},
      {"attention_loss_oracle", "attention loss of the per-step oracle at this policy's own split", "share",
       Better::neither, true},
      {"r_oracle", "importance the best set retains at this policy's own split", "share", Better::neither,
       true},
      {"attention_loss_bound", "least attention loss over all schedules and splits", "share", Better::neither,
       true},
      {"r_bound", "most importance retained over all choices and splits", "share", Better::neither, true},
      {"kept_tokens", "tokens held after the prompt", "tokens per lane", Better::neither, false},
      {"held_tokens", "tokens held at the end", "tokens per lane", Better::neither, false},
      {"evicted_tokens", "tokens evicted", "tokens per lane", Better::neither, false},
      {"kept_bytes", "bytes held after the prompt", "bytes", Better::neither, false},
  };
  return all;
}

bool Metric::oracles_aim_at_it() const {
  const std::string_view name = key;
  return name == "attention_loss" || name == "oracle_cosine" || name.ends_with("output_error") ||
         name.ends_with("output_cosine");
}

const Metric& metric(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric& each : metrics()) {
    if (key == each.key) return each;
    known.emplace_back(each.key);
  }
  usage_error("unknown metric '" + std::string(key) + "'", "metrics", suggestion(key, known));
}

const std::vector<const Metric*>& leading_metrics() {
  static const std::vector<const Metric*> all = {&metric("evidence_loss"), &metric("attention_loss"),
                                                 &metric("r")};
  return all;
}

}  // namespace kvsim::analysis
