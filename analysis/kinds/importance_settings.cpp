#include "analysis/kinds/importance_settings.hpp"

#include "sim/base/error.hpp"
#include "sim/inspect/layer_importance.hpp"

namespace kvsim::analysis {

std::vector<ParamSpec> importance_settings() {
  return {{.name = "rows",
           .fallback = "8",
           .min = 1,
           .max = 1 << 20,
           .help = "Last prompt rows whose attention is importance"},
          {.name = "pool",
           .fallback = "7",
           .min = 1,
           .max = (1 << 20) - 1,
           .help = "Positions that are averaged into each, an odd number; 1: none, plain attention"}};
}

std::vector<std::vector<double>> importance_of(const Measurement& of) {
  sim::ImportanceStudy study;
  study.rows = of.settings.count("rows");
  study.pooling.kernel = of.settings.count("pool");
  if (study.pooling.kernel % 2 == 0)
    usage_error("'" + std::to_string(study.pooling.kernel) + "' is not odd", "--pool",
                "As many positions on either side of each.");
  study.threads = of.threads;
  return sim::layer_importance(of.sequence, study, of.progress);
}

}  // namespace kvsim::analysis
