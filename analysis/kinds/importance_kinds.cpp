// Where XKV's importance w lies in the prompt, how much of it the largest positions retain, and how many that
// takes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/kinds/kind.hpp"
#include "analysis/kinds/retention_curve.hpp"
#include "sim/base/error.hpp"
#include "sim/inspect/layer_importance.hpp"

namespace kvsim::analysis {
namespace {

/// "rows" and "pool", and those that a kind has of its own.
std::vector<ParamSpec> importance_settings(std::vector<ParamSpec> own) {
  const ParamSpec shared[] = {
      {.name = "rows",
       .fallback = "8",
       .min = 1,
       .max = 1 << 20,
       .help = "Last prompt rows whose attention is importance"},
      {.name = "pool",
       .fallback = "7",
       .min = 1,
       .max = (1 << 20) - 1,
       .help = "Positions that are averaged into each, an odd number; 1: none, plain attention"}};
  own.insert(own.begin(), std::begin(shared), std::end(shared));
  return own;
}

/// w of each layer, as sim/inspect/layer_importance.hpp has it, with these settings. Throws Error(usage) for
/// an even "pool" besides.
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

std::vector<std::vector<Value>> measure_importance(const Measurement& of) {
  const std::uint64_t asked = of.settings.count("bins");
  const std::vector<std::vector<double>> layers = importance_of(of);
  const std::uint64_t n = layers[0].size(), bins = asked == 0 ? n : std::min(asked, n);
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<double>& w = layers[layer];
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (std::uint64_t bin = 0; bin < bins; ++bin) {
      // Spans differ by one position at most.
      const std::uint64_t first = n / bins * bin + std::min(bin, n % bins),
                          end = n / bins * (bin + 1) + std::min(bin + 1, n % bins);
      const double part = std::accumulate(w.begin() + static_cast<std::ptrdiff_t>(first),
                                          w.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
      rows.push_back({of.trace, layer, first, end - 1, sum > 0 ? Value(part / sum) : Value()});
    }
  }
  return rows;
}

/// 1, 2, ... in steps of a factor 2^(1 / points), the asked shares of `most`, and `most`: ascending, each
/// once.
std::vector<std::uint64_t> sizes_to_show(std::size_t most, std::uint64_t points,
                                         const std::vector<double>& shares) {
  const auto all = static_cast<double>(most);
  std::vector<std::uint64_t> sizes{most};
  for (double k = 0, n = 1; n < all; n = std::round(std::exp2(++k / static_cast<double>(points))))
    sizes.push_back(static_cast<std::uint64_t>(n));
  for (const double share : shares)
    sizes.push_back(static_cast<std::uint64_t>(std::max(std::round(share * all), 1.0)));
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<std::vector<Value>> measure_retention(const Measurement& of) {
  const std::uint64_t points = of.settings.count("points");
  const std::vector<double> shares = of.settings.shares("shares");
  const std::vector<std::vector<double>> layers = importance_of(of);
  const std::vector<std::uint64_t> sizes = sizes_to_show(layers[0].size(), points, shares);
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t layer = 0; layer < layers.size(); ++layer) {
    const RetentionCurve curve(layers[layer]);
    for (const std::uint64_t n : sizes)
      rows.push_back({of.trace, layer, n, static_cast<double>(n) / static_cast<double>(curve.size()),
                      value_of(curve.retained(n)), value_of(curve.per_bit(n)), value_of(curve.slope(n))});
  }
  return rows;
}

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

/// Where in the prompt each layer's importance lies.
Kind importance_kind() {
  return {
      .name = "importance",
      .summary = "Where in the prompt the importance of each layer lies",
      .source = "XKV, Fig. 2",
      .settings = importance_settings(
          {{.name = "bins",
            .fallback = "128",
            .max = kNoLimit,
            .help = "Positions are summed into at most so many spans; 0: every position"}}),
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"first", "", "first position of the span"},
              {"last", "", "its last position"},
              {"share", "",
               "importance of the span / importance of all positions before the last rows; pooling counts zeros "
               "beyond the ends, so a sink at position 0 keeps 4/7 of its weight"},
          },
      .notes = {"Importance: attention of the last prompt rows, mean over rows and query heads, pooled."},
      .measure = measure_importance};
}

/// R(n), ISR(n) and its slope, layer by layer.
Kind retention_kind() {
  return {
      .name = "retention",
      .summary = "How much importance the n largest positions of each layer retain, by n",
      .source = "XKV, Fig. 3, eq. 9 and 10",
      .settings = importance_settings({{.name = "points",
                                        .fallback = "2",
                                        .min = 1,
                                        .max = 64,
                                        .help = "Sizes n per doubling, on a geometric grid"},
                                       {.name = "shares",
                                        .type = ParamType::shares,
                                        .fallback = "5%,10%,20%,50%",
                                        .help = "Sizes besides, as shares of the positions"}}),
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"n", "tokens", "positions that are kept: those of largest importance"},
              {"share", "", "n / positions that have an importance"},
              {"r", "",
               "R(n), sum of the n largest w / sum of w, w being a layer's mean over all its query heads"},
              {"isr", "per bit", "ISR(n) = R(n) / log2 n; R is a share, not percent"},
              {"isr_slope", "per bit", "f(n) = ISR(n) - ISR(n - 1)"},
          },
      .notes = {"Importance: attention of the last prompt rows, mean over rows and query heads, pooled.",
                "r: share of it that the n largest positions retain. isr: r / log2 n."},
      .measure = measure_retention};
}

/// How many positions each layer needs: for a share of its importance, or until another one adds too little.
Kind retention_size_kind() {
  return {
      .name = "retention-size",
      .summary = "How many positions each layer needs to retain a share of its importance",
      .source = "XKV, Fig. 4, eq. 10",
      .settings = importance_settings(
          {{.name = "r",
            .type = ParamType::shares,
            .fallback = "50%,80%,90%,95%",
            .help = "Shares of importance to retain"},
           {.name = "slope",
            .type = ParamType::real,
            .fallback = "0",
            .min = -1,
            .max = 1,
            .help = "And the last n at which ISR(n) - ISR(n - 1) is at least this, r a share"}}),
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"rule", "",
               "retention: the smallest n with R(n) >= target; slope: the largest n >= 3 with f(n) >= target, so the "
               "last crossing counts"},
              {"target", "", "what the rule asks for"},
              {"n", "tokens", "positions the layer needs, those of largest importance"},
              {"share", "", "n / positions that have an importance"},
              {"r", "", "R(n), importance they retain / importance of all"},
          },
      .notes = {"retention: fewest positions that retain the target share of importance.",
                "slope: the last n at which r / log2 n still grows by the target per position."},
      .measure = measure_retention_size};
}

namespace {

std::size_t split_of(const Measurement& of) {
  if (of.settings.is("split", "prompt")) return of.sequence.prompt_length();
  return static_cast<std::size_t>(
      std::floor(of.settings.share("split") * static_cast<double>(of.sequence.length())));
}

std::vector<std::vector<Value>> measure_persistence(const Measurement& of) {
  sim::PersistenceStudy study;
  study.split = split_of(of);
  study.early_rows = of.settings.count("early-rows");
  study.late_rows = std::min(of.settings.count("late-rows"), of.sequence.length());
  study.average = of.settings.is("average", "row") ? sim::PersistenceStudy::Average::row
                                                   : sim::PersistenceStudy::Average::split;
  study.times = of.settings.real("times");
  study.threads = of.threads;
  const std::vector<sim::LanePersistence> lanes = sim::persistence(of.sequence, study, of.progress);
  const std::uint64_t heads = of.sequence.model().n_kv_heads;
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t i = 0; i < lanes.size(); ++i) {
    const auto [early, late, both] = lanes[i];
    const double chance = static_cast<double>(early) / static_cast<double>(study.split);
    const double ratio = static_cast<double>(both) / static_cast<double>(late);
    rows.push_back({of.trace, i / heads, i % heads, study.split, early, late, both,
                    late > 0 ? Value(ratio) : Value(), chance});
  }
  return rows;
}

}  // namespace

Kind persistence_kind() {
  return {
      .name = "persistence",
      .summary = "Whether positions that were important early are those that are important late, by lane",
      .source = "Scissorhands, section 3 and Fig. 2",
      .settings =
          {
              {.name = "split",
               .type = ParamType::share,
               .fallback = "50%",
               .choices = {"prompt"},
               .help =
                   "Rows before this share of all positions are early, the others late; prompt: split at the "
                   "prompt's end"},
              {.name = "early-rows",
               .fallback = "0",
               .max = kNoLimit,
               .help = "At most so many rows before the split; 0: all"},
              {.name = "late-rows",
               .fallback = "0",
               .max = kNoLimit,
               .help = "At most so many rows from the split on; 0: all"},
              {.name = "average",
               .type = ParamType::choice,
               .fallback = "row",
               .choices = {"row", "split"},
               .help =
                   "Average attention: 1 / positions the row sees (row), or 1 / positions before the split (split)"},
              {.name = "times",
               .type = ParamType::real,
               .fallback = "1",
               .max = 1e6,
               .help = "A position is pivotal in a row that pays it more than so many times the average"},
          },
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"head", "", "KV head within the layer"},
              {"tokens", "tokens", "positions before the split"},
              {"early", "tokens", "of them, those that are pivotal in some early row"},
              {"late", "tokens", "of them, those that are pivotal in some late row"},
              {"both", "tokens", "of them, those that are both"},
              {"persistence", "share", "both / late"},
              {"chance", "share",
               "early / tokens: persistence of positions drawn by lot; persistence near 1 means nothing unless this "
               "is low"},
          },
      .notes =
          {"pivotal: gets more than average attention of a row, mean over the lane's query heads.",
           "persistence: share of the late pivotal positions that had been pivotal before; chance: of any "
           "positions."},
      .measure = measure_persistence};
}

}  // namespace kvsim::analysis
