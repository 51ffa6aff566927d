#include "policies/api/score_policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "policies/api/slots.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy {
namespace {

constexpr double kMostTokens = 1 << 30;

}  // namespace

ParamSpec sinks_param(std::size_t fallback) {
  return count_param("sinks", std::to_string(fallback), {0, kMostTokens},
                     "first positions of the sequence, never dropped", "tokens");
}

ParamSpec window_param(std::size_t fallback, std::size_t least) {
  return count_param("window", std::to_string(fallback), {static_cast<double>(least), kMostTokens},
                     "last positions, never dropped while among the last", "tokens");
}

ParamSpec rows_param(std::size_t fallback) {
  return count_param("rows", std::to_string(fallback), {1, kMostTokens},
                     "last prompt rows that are looked at", "rows");
}

ParamSpec unit_param(const char* fallback) {
  return choice_param("unit", fallback, {"lane", "layer"},
                      "what has its own kept set: a KV head, or a layer whose heads share one");
}

ParamSpec tie_param(const char* fallback) {
  return choice_param(
      "tie", fallback, {"oldest", "newest", "slot"},
      "which of two equal scores is dropped first; slot: the one lower in the cache, as an argmin finds it");
}

ParamSpec ranked_tie_param() {
  return choice_param("tie", "oldest", {"oldest", "newest"}, "which of two equal scores is dropped first");
}

ParamSpec granularity_param(std::size_t fallback) {
  return count_param("granularity", std::to_string(fallback), {1, kMostTokens},
                     "whole blocks of so many positions stay or leave: 1 a token, 8 a chunk, 32 a page",
                     "tokens");
}

ParamSpec phase_param(const char* fallback) {
  return choice_param("phase", fallback, {"pre", "post"},
                      "when a token leaves a full cache: before the next one attends, or after it has, which "
                      "attends B + 1");
}

ParamSpec prompt_param(const char* fallback) {
  return choice_param(
      "prompt", fallback, {"rank", "stream"},
      "the prompt is ranked at once when it ends, or passes through the cache token by token");
}

ParamSpec group_param(const char* fallback) {
  return choice_param(
      "group", fallback, {"mean", "max"},
      "how the query heads that share a set are reduced to one score (a sum ranks as the mean)");
}

ParamSpec feedback_param(const char* fallback) {
  return choice_param(
      "feedback", fallback, {"renorm", "raw"},
      "what decoding sees: the compressed cache's own attention, or the full cache's on what is resident");
}

ParamSpec decode_param(const char* fallback) {
  return flag_param("decode", fallback,
                    "generated tokens are managed too; false: they are appended and never leave");
}

ParamSpec drop_param(const char* fallback) {
  return real_param("drop", fallback, {0, 1},
                    "how much of a full cache leaves at once, rounded down, at least one token",
                    "share of the budget");
}

std::vector<ParamSpec> with(std::vector<ParamSpec> own, const std::vector<ParamSpec>& shared) {
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

KeepRule KeepRule::of(const Params& params) {
  KeepRule out;
  if (params.has("base")) out = of(params.part("base").params);
  if (params.has("sinks")) out.protection.sinks = std::max(out.protection.sinks, params.count("sinks"));
  if (params.has("window")) out.protection.window = params.count("window");
  if (params.has("granularity")) out.granularity = params.count("granularity");
  if (params.has("drop")) out.drop = params.real("drop");
  if (params.has("phase")) out.post = params.word("phase") == "post";
  if (params.has("prompt")) out.stream = params.word("prompt") == "stream";
  if (params.has("tie")) {
    const std::string& tie = params.word("tie");
    out.tie = tie == "oldest" ? Tie::oldest : tie == "newest" ? Tie::newest : Tie::slot;
  }
  return out;
}

std::size_t KeepRule::floor() const {
  const std::size_t sink_blocks = (protection.sinks + granularity - 1) / granularity;
  // The window may begin with the last position of a block.
  return sink_blocks * granularity + std::max<std::size_t>(protection.window, 1) + granularity - 1;
}

Protection KeepRule::protection_in(std::size_t budget) const {
  Protection out = protection;
  if (recent == 0 || budget < floor()) return out;
  // The window may take all of the budget except the blocks of sinks, and it may begin with the last position
  // of a block.
  const std::size_t most = budget - (floor() - std::max<std::size_t>(out.window, 1));
  out.window = std::min(out.window + static_cast<std::size_t>(recent * static_cast<double>(budget)), most);
  return out;
}

void check_decode(const Params& params) {
  if (!params.flag("decode") && KeepRule::of(params).stream)
    usage_error("prompt=stream with decode=false would never evict", "policy parameters",
                "A streamed prompt is managed token by token, as generated tokens are: leave decode=true.");
}

Group group_of(const Params& params) {
  return params.word("group") == "mean" ? Group::mean : Group::max;
}

Feedback feedback_of(const Params& params) {
  return params.word("feedback") == "renorm" ? Feedback::renorm : Feedback::raw;
}

void ScoredEviction::finish_prompt(const Prompt& prompt) {
  scores_ = score(prompt);
  if (scores_.size() != prompt.length())
    bug("a policy scored another number of positions than the prompt has");
  const auto nan = std::find_if(scores_.begin(), scores_.end(), [](double s) { return std::isnan(s); });
  if (nan != scores_.end())
    input_error("the score of position " + std::to_string(nan - scores_.begin()) + " is not a number",
                "layer " + std::to_string(unit_.layer) + ", KV head " + std::to_string(unit_.first_kv_head),
                "The keys, values or attention of the run hold values that are not finite.");

  order_ = BlockOrder(scores_, rule_.granularity, rule_.tie, prompt.first());
}

Start ScoredEviction::start(std::size_t budget) const {
  Start out;
  if (!rule_.stream) {
    std::vector<char> stays = order_.protected_blocks(protection(budget, scores_.size()));
    reserve(budget, stays);
    out.keep = order_.best(budget, std::move(stays));
  }
  out.decoder = decoder(budget, out.keep);
  return out;
}

KeepRule ScoredEviction::selection(std::size_t budget) const {
  KeepRule out = rule_;
  out.protection = protection(budget, scores_.size());
  return out;
}

std::vector<double> ScoredEviction::scores_of(std::span<const Position> positions) const {
  return at_positions(scores_, positions);
}

bool ScoredDecoder::is_protected(const Arrival& arrival, std::int64_t position) const {
  const auto [sinks, window] = selection_.protection;
  const std::int64_t newest = std::int64_t{arrival.position} - (selection_.post ? 1 : 0);
  return position < static_cast<std::int64_t>(sinks) || position > newest - static_cast<std::int64_t>(window);
}

void ScoredDecoder::evict(const Arrival& arrival, std::vector<std::size_t>& victims) {
  if (!arrival.full) return;
  rescore(arrival);
  const std::size_t budget = arrival.slots.size() - (selection_.post ? 1 : 0);
  const auto leaving = static_cast<std::size_t>(selection_.drop * static_cast<double>(budget));
  if (selection_.granularity > 1)
    lowest_block(arrival, victims);
  else if (leaving > 1)
    lowest_of(leaving, arrival, victims);
  else
    victims.push_back(lowest(arrival));
  if (victims.size() > 1) close_slots(victims);
}

std::size_t ScoredDecoder::lowest(const Arrival& arrival) const {
  const std::size_t n = arrival.slots.size();
  std::size_t victim = n;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t slot = 0; slot < n; ++slot) {
    if (scores_[slot] > least) continue;  // nearly always: the loop costs little more than this test
    const Position position = arrival.slots[slot];
    if (is_protected(arrival, position)) continue;
    if (victim < n && scores_[slot] == least) {
      if (selection_.tie == Tie::slot) continue;
      if ((position < arrival.slots[victim]) != (selection_.tie == Tie::oldest)) continue;
    }
    victim = slot;
    least = scores_[slot];
  }
  if (victim == n) bug("every slot is protected: the budget is below the policy's floor");
  return victim;
}

void ScoredDecoder::lowest_of(std::size_t count, const Arrival& arrival,
                              std::vector<std::size_t>& victims) const {
  for (std::size_t slot = 0; slot < arrival.slots.size(); ++slot)
    if (!is_protected(arrival, arrival.slots[slot])) victims.push_back(slot);
  if (victims.empty()) bug("every slot is protected: the budget is below the policy's floor");
  std::sort(victims.begin(), victims.end(), [&](std::size_t a, std::size_t b) {
    if (scores_[a] != scores_[b]) return scores_[a] < scores_[b];
    if (selection_.tie == Tie::slot) return a < b;
    return (arrival.slots[a] < arrival.slots[b]) == (selection_.tie == Tie::oldest);
  });
  victims.resize(std::min(count, victims.size()));
}

void ScoredDecoder::lowest_block(const Arrival& arrival, std::vector<std::size_t>& victims) const {
  const auto block = static_cast<Position>(selection_.granularity);
  const std::vector<std::size_t> by_position = least_first(arrival.slots);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0, end; first < by_position.size(); first = end) {
    const Position number = arrival.slots[by_position[first]] / block;
    double sum = 0;
    bool stays = false;
    for (end = first; end < by_position.size() && arrival.slots[by_position[end]] / block == number; ++end) {
      sum += scores_[by_position[end]];
      stays = stays || is_protected(arrival, arrival.slots[by_position[end]]);
    }
    const double mean = sum / static_cast<double>(end - first);
    // Blocks come from the oldest to the newest, so the first of equals is the oldest.
    if (stays || mean > least || (mean == least && !victims.empty() && selection_.tie != Tie::newest))
      continue;
    least = mean;
    victims.assign(by_position.begin() + static_cast<std::ptrdiff_t>(first),
                   by_position.begin() + static_cast<std::ptrdiff_t>(end));
  }
  if (victims.empty()) bug("every block is protected: the budget is below the policy's floor");
}

void ScoredDecoder::close_slots(std::span<const std::size_t> victims) {
  close_up(scores_, victims);
}

std::span<double> ScoredDecoder::admit(const Step& step, double own) {
  scores_.resize(step.slots.size());
  scores_[step.own_slot] = own;
  return scores_;
}

void add_attention(const Step& step, Feedback feedback, Group group, double weight,
                   std::span<double> scores) {
  const std::size_t heads = step.attention.rows;
  const auto factor = [&](std::size_t head) {
    return feedback == Feedback::renorm ? renormalise(step, head) : 1;
  };
  if (group == Group::mean || heads == 1) {
    for (std::size_t head = 0; head < heads; ++head)
      add_scaled(step.attention.row(head), weight * factor(head) / static_cast<double>(heads), scores);
    return;
  }
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    double strongest = 0;
    for (std::size_t head = 0; head < heads; ++head)
      strongest = std::max(strongest, factor(head) * static_cast<double>(step.attention(head, slot)));
    scores[slot] += weight * strongest;
  }
}

BlockOrder::BlockOrder(std::span<const double> scores, std::size_t granularity, Tie tie, std::size_t first)
    : blocks_{scores.size(), granularity, first}, order_(blocks_.count()) {
  std::vector<double> means(order_.size());
  for (std::size_t b = 0; b < means.size(); ++b) {
    for (const double score : scores.subspan(blocks_.begin(b), blocks_.size(b))) means[b] += score;
    means[b] /= static_cast<double>(blocks_.size(b));
  }
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (means[a] != means[b]) return means[a] > means[b];
    return tie == Tie::newest ? a < b : a > b;
  });
}

std::vector<char> BlockOrder::protected_blocks(const Protection& protection) const {
  const std::size_t length = blocks_.length,
                    sinks = std::min(protection.sinks - std::min(protection.sinks, blocks_.first), length);
  const std::size_t window_from = length - std::min(protection.window, length - sinks);
  std::vector<char> out(order_.size());
  for (std::size_t b = 0; b < out.size(); ++b)
    out[b] = blocks_.begin(b) < sinks || blocks_.end(b) > window_from;
  return out;
}

std::size_t BlockOrder::tokens(const std::vector<char>& blocks) const {
  std::size_t sum = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) sum += blocks[b] ? blocks_.size(b) : 0;
  return sum;
}

std::size_t BlockOrder::protected_tokens(const Protection& protection) const {
  return tokens(protected_blocks(protection));
}

std::vector<Position> BlockOrder::best(std::size_t budget, std::vector<char> stays) const {
  const std::size_t held = tokens(stays);
  std::size_t room = std::min(budget, blocks_.length);
  if (held > room) bug("budget is below the policy's floor");
  room -= held;
  for (const std::uint32_t b : order_) {
    if (stays[b]) continue;
    if (blocks_.size(b) > room) break;
    stays[b] = 1;
    room -= blocks_.size(b);
  }
  std::vector<Position> keep;
  keep.reserve(std::min(budget, blocks_.length));
  for (std::size_t row = 0; row < blocks_.length; ++row)
    if (stays[blocks_.of(row)]) keep.push_back(static_cast<Position>(row));
  return keep;
}

}  // namespace kvsim::policy
