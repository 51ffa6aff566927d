#include "analysis/kinds/importance_settings.hpp"

#include "sim/base/error.hpp"
#include "sim/inspect/layer_importance.hpp"

namespace kvsim::analysis {

std::vector<Setting> importance_settings() {
  return {
      {"rows", "8", "N", "Last prompt rows whose attention is importance"},
      {"pool", "7", "N", "Positions that are averaged into each, an odd number; 1: none, plain attention"}};
}

std::vector<std::vector<double>> importance_of(const Measurement& of) {
  sim::ImportanceStudy study;
  study.rows = of.settings.whole("rows", 1, 1ULL << 20);
  study.pooling.kernel = of.settings.whole("pool", 1, (1ULL << 20) - 1);
  if (study.pooling.kernel % 2 == 0)
    usage_error("'" + of.settings.text("pool") + "' is not odd", "--pool",
                "As many positions on either side of each.");
  study.threads = of.threads;
  return sim::layer_importance(of.sequence, study, of.progress);
}

}  // namespace kvsim::analysis
