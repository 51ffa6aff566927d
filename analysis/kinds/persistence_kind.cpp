// Whether positions that were important early are those that are important late.
#include <algorithm>
#include <cmath>

#include "analysis/kinds/kind.hpp"
#include "sim/inspect/persistence.hpp"

namespace kvsim::analysis {
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
