#include "analysis/kinds/ranking_settings.hpp"

#include <algorithm>

#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

sim::Ranking ranking_of(const std::string& text, const policy::Registry& policies) {
  sim::Ranking ranking;
  if (text == "hash") {
    ranking.by = sim::Ranking::By::hash;
  } else if (text == "recency") {
    ranking.by = sim::Ranking::By::recency;
  } else {
    const policy::Composition composition = policy::parse_composition(text, policies);
    ranking.part = composition.eviction;
    if (composition.name.find('+') != std::string::npos)
      usage_error("'" + text + "' has an allocation; a ranking drops whatever its lane's size", "--rankings");
    if (!ranking.part.spec->scored()) {
      std::vector<std::string> scored{"hash", "recency"};
      for (const policy::PolicySpec& spec : policies.policies())
        if (spec.scored()) scored.push_back(spec.name);
      usage_error("'" + text + "' does not rank by a score", "--rankings",
                  "These do: " + joined(scored, ", ") + ".");
    }
  }
  return ranking;
}

}  // namespace

std::vector<ParamSpec> ranking_settings() {
  return {
      {.name = "rankings",
       .type = ParamType::texts,
       .fallback = "l2_norm,keydiff,hash,recency,random",
       .help = "hash, recency, or policies that rank by a score, such as snapkv(window=4)"},
      {.name = "mean",
       .type = ParamType::choice,
       .fallback = "all_rows",
       .choices = {"all_rows", "visible"},
       .help = "Attention of a position: mean over all_rows of the prompt, or over those that see it "
               "(visible)"},
      {.name = "bits", .fallback = "16", .min = 1, .max = 64, .help = "Length of the codes of ranking hash"},
      {.name = "seed", .fallback = "0", .max = kNoLimit, .help = "Of ranking hash and of random policies"}};
}

AskedRankings asked_rankings(const Measurement& of) {
  AskedRankings out;
  out.names = of.settings.texts("rankings");
  for (auto name = out.names.begin(); name != out.names.end(); ++name) {
    if (std::find(out.names.begin(), name, *name) != name)
      usage_error("'" + *name + "' is asked for twice", "--rankings");
    out.study.rankings.push_back(ranking_of(*name, of.policies));
  }
  out.study.mean = of.settings.word("mean") == "visible" ? sim::RowMean::visible : sim::RowMean::all_rows;
  out.study.hash_bits = of.settings.count("bits");
  out.study.seed = of.settings.count("seed");
  out.study.threads = of.threads;
  return out;
}

}  // namespace kvsim::analysis
