// Whether positions that were important early are those that are important late.
#include <cmath>

#include "analysis/kinds/kind.hpp"
#include "sim/base/error.hpp"
#include "sim/inspect/persistence.hpp"

namespace kvsim::analysis {
namespace {

std::size_t split_of(const Measurement& of) {
  if (of.settings.text("split") == "prompt") return of.sequence.prompt_length();
  const std::vector<double> share = of.settings.shares("split");
  if (share.size() != 1)
    usage_error("'" + of.settings.text("split") + "' is neither one share nor prompt", "--split");
  return static_cast<std::size_t>(std::floor(share[0] * static_cast<double>(of.sequence.length())));
}

sim::PersistenceStudy::Average average_of(const Settings& settings) {
  const std::string& text = settings.text("average");
  if (text == "row") return sim::PersistenceStudy::Average::row;
  if (text == "split") return sim::PersistenceStudy::Average::split;
  usage_error("'" + text + "' is neither row nor split", "--average");
}

std::vector<std::vector<Value>> measure(const Measurement& of) {
  sim::PersistenceStudy study;
  study.split = split_of(of);
  study.early_rows = of.settings.whole("early-rows", 0, 1ULL << 40);
  study.late_rows = of.settings.whole("late-rows", 0, 1ULL << 40);
  study.average = average_of(of.settings);
  study.times = of.settings.number("times", 0, 1e6);
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
  Kind kind;
  kind.name = "persistence";
  kind.summary = "Whether positions that were important early are those that are important late, by lane";
  kind.source = "Scissorhands, section 3 and Fig. 2";
  kind.settings = {
      {"split", "50%", "SHARE",
       "Rows before this share of all positions are early, the others late; prompt: split at the prompt's "
       "end"},
      {"early-rows", "0", "N", "At most so many rows before the split; 0: all"},
      {"late-rows", "0", "N", "At most so many rows from the split on; 0: all"},
      {"average", "row", "WHICH",
       "Average attention: 1 / positions the row sees (row), or 1 / positions before the split (split)"},
      {"times", "1", "X", "A position is pivotal in a row that pays it more than X times the average"},
  };
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"layer", "", "layer"},
      {"head", "", "KV head within the layer"},
      {"tokens", "tokens", "positions before the split"},
      {"early", "tokens", "of them, those that are pivotal in some early row"},
      {"late", "tokens", "of them, those that are pivotal in some late row"},
      {"both", "tokens", "of them, those that are both"},
      {"persistence", "share", "both / late"},
      {"chance", "share", "early / tokens: persistence of positions drawn by lot"},
  };
  kind.notes = {
      "pivotal: gets more than average attention of a row, mean over the lane's query heads.",
      "persistence: share of the late pivotal positions that had been pivotal before; chance: of any "
      "positions."};
  kind.measure = measure;
  return kind;
}

}  // namespace kvsim::analysis
