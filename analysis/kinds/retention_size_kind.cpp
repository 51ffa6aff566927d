// How many positions each layer needs: for a share of its importance, or until another one adds too little.
#include "analysis/kinds/importance_settings.hpp"
#include "analysis/kinds/retention_curve.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::vector<Value>> measure_retention_size(const Measurement& of) {
  const std::vector<double> targets = of.settings.shares("r");
  const double least = of.settings.real("slope");
  const std::vector<std::vector<double>> layers = importance_of(of);
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t layer = 0; layer < layers.size(); ++layer) {
    const RetentionCurve curve(layers[layer]);
    const auto row = [&](const char* rule, double target,
                         const std::optional<std::size_t>& n) -> std::vector<Value> {
      if (!n) return {of.trace, layer, rule, target, {}, {}, {}};
      const double share = static_cast<double>(*n) / static_cast<double>(curve.size());
      return {of.trace, layer, rule, target, std::uint64_t{*n}, share, value_of(curve.retained(*n))};
    };
    for (const double target : targets) rows.push_back(row("retention", target, curve.size_for(target)));
    rows.push_back(row("slope", least, curve.last_slope(least)));
  }
  return rows;
}

}  // namespace

Kind retention_size_kind() {
  Kind kind;
  kind.name = "retention-size";
  kind.summary = "How many positions each layer needs to retain a share of its importance";
  kind.source = "XKV, Fig. 4, eq. 10";
  kind.settings = importance_settings();
  kind.settings.push_back({.name = "r",
                           .type = ParamType::shares,
                           .fallback = "50%,80%,90%,95%",
                           .help = "Shares of importance to retain"});
  kind.settings.push_back(
      {.name = "slope",
       .type = ParamType::real,
       .fallback = "0",
       .min = -1,
       .max = 1,
       .help = "And the last n at which ISR(n) - ISR(n - 1) is at least this, r a share"});
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"layer", "", "layer"},
      {"rule", "", "retention: the smallest n with R(n) >= target; slope: the largest with f(n) >= target"},
      {"target", "", "what the rule asks for"},
      {"n", "tokens", "positions the layer needs, those of largest importance"},
      {"share", "", "n / positions that have an importance"},
      {"r", "", "R(n), importance they retain / importance of all"},
  };
  kind.notes = {"retention: fewest positions that retain the target share of importance.",
                "slope: the last n at which r / log2 n still grows by the target per position."};
  kind.measure = measure_retention_size;
  return kind;
}

}  // namespace kvsim::analysis
