#include "sim/inspect/ranking_study.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "policies/parts/index/fingerprints.hpp"
#include "sim/attention/prompt_pass.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/replay_unit.hpp"
#include "sim/replay/table_files.hpp"

namespace kvsim::sim {
namespace {

/// What the study's policies need together.
struct Wanted {
  std::vector<std::optional<EvictionGroup>> eviction_groups;  ///< per ranking, if it is a policy
  policy::Needs needs;
  bool whole_layers = false;
};

Wanted wanted_by(const trace::Sequence& sequence, const RankingStudy& study) {
  Wanted out;
  for (const Ranking& ranking : study.rankings) {
    std::optional<EvictionGroup>& eviction_group = out.eviction_groups.emplace_back();
    if (ranking.by == Ranking::By::hash) out.needs.queries = true;
    if (ranking.by != Ranking::By::policy) continue;
    const policy::Part& part = ranking.part;
    if (part.spec == nullptr || !part.spec->scored() || part.spec->is_oracle())
      usage_error("does not rank the prompt by a score", part.spec == nullptr ? "" : part.spec->name);
    eviction_group = make_eviction_group(sequence, part, part.layer_unit(), study.seed);
    if (eviction_group->streams)
      usage_error("takes the prompt token by token and has no scores of it", part.spec->name,
                  "With prompt=rank it has.");
    out.needs = policy::merged(out.needs, eviction_group->needs);
    out.whole_layers = out.whole_layers || eviction_group->layer_unit;
  }
  return out;
}

/// Returns minus the mean Hamming distance between a key's code and the codes of the lane's queries that see
/// it.
std::vector<double> hash_scores(const GroupTensors& tensors, std::size_t lane, std::size_t bits,
                                std::uint64_t seed) {
  const trace::Sequence& sequence = tensors.sequence();
  const std::size_t prompt = sequence.prompt_length(), group = sequence.model().group();
  const LaneGroup lanes = tensors.group();
  const policy::SimHash hash(bits, sequence.model().head_dim,
                             combine({seed, key_of("hash ranking"), lanes.layer, lanes.first_head + lane}));
  std::vector<std::uint64_t> queries(group * prompt);
  for (std::size_t g = 0; g < group; ++g)
    for (std::size_t i = 0; i < prompt; ++i)
      queries[g * prompt + i] = hash(tensors.queries(lane * group + g).row(i));
  std::vector<double> scores;
  for (std::size_t j = tensors.first_held(); j < prompt; ++j) {
    const std::uint64_t key = hash(tensors.keys(lane).row(j));
    std::uint64_t distance = 0;
    for (std::size_t g = 0; g < group; ++g)
      for (std::size_t i = j; i < prompt; ++i)
        distance += static_cast<std::uint64_t>(std::popcount(queries[g * prompt + i] ^ key));
    scores.push_back(-static_cast<double>(distance) / static_cast<double>(group * (prompt - j)));
  }
  return scores;
}

/// Returns the policy's own scores, raised to infinity where it protects a position at any budget: these are
/// dropped last.
std::vector<double> policy_scores(const policy::Part& part, const policy::Eviction& eviction,
                                  const policy::Prompt& prompt) {
  const std::size_t length = prompt.length();
  std::vector<double> scores(eviction.scores().begin(), eviction.scores().end());
  if (scores.size() != length) bug("a scored policy has no score for every row of the prompt");
  const policy::Protection protection = part.protection()(0, length);
  const std::size_t sinks = prompt.sinks(protection.sinks), window = std::min(protection.window, length);
  constexpr double kLast = std::numeric_limits<double>::infinity();
  std::fill_n(scores.begin(), sinks, kLast);
  std::fill_n(scores.rbegin(), window, kLast);
  return scores;
}

/// Measures the lanes of one group under every ranking.
class GroupRankings {
 public:
  GroupRankings(const trace::Sequence& sequence, const RankingStudy& study, const Wanted& wanted,
                LaneGroup group, const policy::Tables& tables)
      : study_(study), tensors_(sequence, group, wanted.needs) {
    const trace::Model& model = sequence.model();
    for (std::uint32_t lane = 0; lane < group.n_lanes; ++lane)
      attention_.emplace_back(study.mean, model.layer_window[group.layer], model.group());
    for (const std::optional<EvictionGroup>& eviction_group : wanted.eviction_groups) {
      units_.emplace_back();
      if (eviction_group)
        units_.back() =
            replay_units(*eviction_group, tensors_, prompt_seed(sequence, study.seed), &tables, {});
    }
  }

  void observe_prompt(Progress& progress) {
    const std::size_t prompt = tensors_.sequence().prompt_length();
    std::vector<Subscription> subscriptions;
    for (std::size_t lane = 0; lane < attention_.size(); ++lane)
      subscriptions.push_back({&attention_[lane], lane, 1, {prompt}});
    for (std::vector<ReplayUnit>& units : units_)
      for (ReplayUnit& unit : units) subscriptions.push_back(unit.subscription());
    replay_prompt(tensors_, subscriptions, progress);
  }

  LaneRankings lane(std::size_t lane) const {
    const std::vector<double>& attention = attention_[lane].values();
    const std::vector<double> least = least_attention_first(attention);
    LaneRankings out;
    out.largest_area = excess_area(std::vector<double>(least.rbegin(), least.rend()), least);
    out.least_loss = at_shares(least);
    for (std::size_t r = 0; r < study_.rankings.size(); ++r) {
      const std::vector<double> dropped = attention_in_drop_order(attention, scores(r, lane));
      out.rankings.push_back({excess_area(dropped, least), at_shares(dropped)});
    }
    return out;
  }

 private:
  std::vector<double> scores(std::size_t ranking, std::size_t lane) const {
    const GroupTensors::PromptView prompt(tensors_, lane);
    switch (study_.rankings[ranking].by) {
      case Ranking::By::hash:
        return hash_scores(tensors_, lane, study_.hash_bits, study_.seed);
      case Ranking::By::recency: {
        std::vector<double> positions(prompt.length());
        std::iota(positions.begin(), positions.end(), 0.0);
        return positions;
      }
      case Ranking::By::policy:
        break;
    }
    const std::vector<ReplayUnit>& units = units_[ranking];
    const ReplayUnit& unit = units[lane / units.front().n_lanes()];
    return policy_scores(*unit.eviction_group().eviction, unit.eviction(), prompt);
  }

  std::vector<double> at_shares(std::span<const double> dropped) const {
    const std::vector<double> loss = cumulative_loss(dropped);
    std::vector<double> out;
    for (const double share : study_.dropped)
      out.push_back(loss[static_cast<std::size_t>(std::lround(share * static_cast<double>(dropped.size())))]);
    return out;
  }

  const RankingStudy& study_;
  const GroupTensors tensors_;
  std::vector<MeanAttention> attention_;        ///< per lane
  std::vector<std::vector<ReplayUnit>> units_;  ///< per ranking
};

}  // namespace

std::vector<LaneRankings> ranking_study(const trace::Sequence& sequence, const RankingStudy& study,
                                        Progress& progress) {
  if (study.rankings.empty()) usage_error("no ranking to study");
  if (study.hash_bits == 0 || study.hash_bits > policy::kMaxHashBits)
    usage_error("a hash has 1 to " + std::to_string(policy::kMaxHashBits) + " bits, not " +
                std::to_string(study.hash_bits));
  require_attention(sequence, 0);
  const trace::Model& model = sequence.model();
  const Wanted wanted = wanted_by(sequence, study);
  const std::vector<LaneGroup> groups = lane_groups(model, wanted.whole_layers);
  progress.total.store(std::uint64_t{model.n_layers} * model.n_q_heads * sequence.prompt_length(),
                       std::memory_order_relaxed);
  const TableFiles tables(sequence);
  std::vector<LaneRankings> lanes(std::size_t{model.n_layers} * model.n_kv_heads);
  Workers workers(study.threads);
  workers.run(groups.size(), [&](std::size_t i) {
    const LaneGroup group = groups[i];
    GroupRankings rankings(sequence, study, wanted, group, tables);
    rankings.observe_prompt(progress);
    for (std::size_t lane = 0; lane < group.n_lanes; ++lane) {
      progress.check();
      lanes[std::size_t{group.layer} * model.n_kv_heads + group.first_head + lane] = rankings.lane(lane);
    }
  });
  return lanes;
}

std::vector<double> attention_in_drop_order(std::span<const double> attention,
                                            std::span<const double> scores) {
  const std::vector<std::size_t> order = least_first(scores);
  std::vector<double> out(order.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    double sum = 0;
    for (end = first; end < order.size() && scores[order[end]] == scores[order[first]]; ++end)
      sum += attention[order[end]];
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(first),
              out.begin() + static_cast<std::ptrdiff_t>(end), sum / static_cast<double>(end - first));
  }
  return out;
}

std::vector<double> least_attention_first(std::span<const double> attention) {
  std::vector<double> out(attention.begin(), attention.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<double> cumulative_loss(std::span<const double> dropped) {
  std::vector<double> out{0};
  for (const double a : dropped) out.push_back(out.back() + a);
  return out;
}

double excess_area(std::span<const double> dropped, std::span<const double> least) {
  double area = 0, gap = 0;
  for (std::size_t m = 0; m < dropped.size(); ++m) {
    gap += dropped[m] - least[m];
    area += std::max(gap, 0.0);  // a gap below 0 is rounding: no order loses less than the least
  }
  return area;
}

}  // namespace kvsim::sim
