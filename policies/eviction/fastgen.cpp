// Gives every head the smallest set that fits its attention: special tokens, punctuation, frequent, local, or
// all.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"

namespace kvsim::policy::fastgen {
namespace {

/// Each keeps what the one before keeps, and more.
enum class Hybrid { special, punctuation, frequent, local, full };

struct Settings {
  explicit Settings(const Params& params)
      : recovery(params.real("recovery")),
        frequent(params.real("frequent")),
        local(params.real("local")),
        sinks(params.count("sinks")),
        feedback(feedback_of(params)) {}

  std::size_t n_frequent(std::size_t length) const {
    return static_cast<std::size_t>(std::ceil(frequent * static_cast<double>(length)));
  }
  std::size_t n_local(std::size_t length) const {
    return std::max<std::size_t>(1, static_cast<std::size_t>(local * static_cast<double>(length)));
  }
  /// Whether the token's class alone keeps it, whatever attention it receives.
  bool by_class(Hybrid hybrid, Position position, std::uint8_t classes) const {
    return static_cast<std::size_t>(position) < sinks || (classes & kSpecialToken) != 0 ||
           (hybrid >= Hybrid::punctuation && (classes & kPunctuation) != 0);
  }

  double recovery, frequent, local;
  std::size_t sinks;
  Feedback feedback;
};

/// A token with the number that ranks frequent ones: its mean attention over the queries that saw it.
struct Candidate {
  double mean = 0;
  Position position = 0;
  std::size_t slot = 0;
};

/// Puts the `count` most frequent first; of equals the newer one.
void frequent_first(std::size_t count, std::vector<Candidate>& candidates) {
  if (count >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                   candidates.end(), [&](const Candidate& a, const Candidate& b) {
                     return a.mean != b.mean ? a.mean > b.mean : a.position > b.position;
                   });
}

/// Per query head, column sums within a band: for key j, over rows j .. j + width - 1. Rows are added in
/// order of position, as ColumnSums does.
class BandSums {
 public:
  explicit BandSums(int n_query_heads) : heads_(static_cast<std::size_t>(n_query_heads)) {}

  void add(const PromptRows& block, std::size_t width) {
    std::vector<double>& sums = heads_[static_cast<std::size_t>(block.query_head)];
    sums.resize(block.prompt_length);
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      const std::size_t end = block.first_query + i + 1;
      for (std::size_t j = end - std::min(width, end); j < end; ++j)
        sums[j] += static_cast<double>(block.p(i, j));
    }
  }

  double mean(std::size_t j) const {
    double sum = 0;
    for (const std::vector<double>& sums : heads_) sum += sums[j];
    return sum / static_cast<double>(heads_.size());
  }

 private:
  std::vector<std::vector<double>> heads_;
};

/// The attention that a slot's token has received.
struct Received {
  double attention = 0;
  std::size_t queries = 0;
  bool by_class = false;

  double mean() const { return attention / static_cast<double>(queries); }
};

class FastGenDecoder final : public Decoder {
 public:
  FastGenDecoder(const CacheUnit& unit, const Settings& set, Hybrid hybrid, std::vector<Received> received)
      : unit_(unit), set_(set), hybrid_(hybrid), received_(std::move(received)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    const std::size_t end = static_cast<std::size_t>(arrival.position) + 1, length = unit_.reach(end);
    candidates_.clear();
    for (std::size_t slot = 0; slot < received_.size(); ++slot)
      if (!received_[slot].by_class && arrival.leaving != slot)
        candidates_.push_back({received_[slot].mean(), arrival.slots[slot], slot});
    const std::size_t n_frequent =
        hybrid_ >= Hybrid::frequent ? std::min(set_.n_frequent(length), candidates_.size()) : 0;
    frequent_first(n_frequent, candidates_);
    // The arriving token counts as the newest local one.
    const std::size_t local_from = hybrid_ >= Hybrid::local ? end - set_.n_local(length) : end;
    for (std::size_t i = n_frequent; i < candidates_.size(); ++i)
      if (static_cast<std::size_t>(candidates_[i].position) < local_from)
        victims.push_back(candidates_[i].slot);
    std::sort(victims.begin(), victims.end());
    close_up(received_, victims);
    own_by_class_ = set_.by_class(hybrid_, arrival.position, arrival.token_class);
  }

  void observe(const Step& step) override {
    received_.resize(step.slots.size());
    received_[step.own_slot] = {.by_class = own_by_class_};
    attention_.assign(received_.size(), 0.0);
    add_attention(step, set_.feedback, Group::mean, 1, attention_);
    for (std::size_t slot = 0; slot < received_.size(); ++slot) {
      received_[slot].attention += attention_[slot];
      ++received_[slot].queries;
    }
  }
  void close_slots(std::span<const std::size_t> victims) override { close_up(received_, victims); }

 private:
  CacheUnit unit_;
  Settings set_;
  Hybrid hybrid_;
  std::vector<Received> received_;
  bool own_by_class_ = false;
  std::vector<Candidate> candidates_;
  std::vector<double> attention_;
};

class FastGen final : public Eviction {
 public:
  FastGen(const Settings& set, const CacheUnit& unit)
      : unit_(unit), set_(set), columns_(unit.n_query_heads(), kAllRows), bands_(unit.n_query_heads()) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& rows) override {
    columns_.add(rows);
    bands_.add(rows, set_.n_local(rows.prompt_length));
  }

  void finish_prompt(const Prompt& prompt) override {
    const std::vector<double> columns = columns_.mean();
    first_ = prompt.first();
    classes_.assign(prompt.classes().begin(), prompt.classes().end());
    received_.resize(prompt.length());
    for (std::size_t j = 0; j < received_.size(); ++j)
      received_[j] = {.attention = columns[j], .queries = unit_.seen_by(j, kAllRows, received_.size())};
    choose_frequent();
    hybrid_ = cheapest();
  }

  Start start(std::size_t /*budget*/) const override {
    Start out;
    std::vector<Received> received;
    for (std::size_t j = 0; j < received_.size(); ++j) {
      if (!keeps(hybrid_, j)) continue;
      out.keep.push_back(static_cast<Position>(j));
      received.push_back(received_[j]);
      received.back().by_class = by_class(hybrid_, j);
    }
    if (hybrid_ != Hybrid::full)
      out.decoder = std::make_unique<FastGenDecoder>(unit_, set_, hybrid_, std::move(received));
    return out;
  }

 private:
  bool by_class(Hybrid hybrid, std::size_t j) const {
    return set_.by_class(hybrid, static_cast<Position>(first_ + j), classes_[j]);
  }
  /// Whether the hybrid keeps column j for every query.
  bool keeps_column(Hybrid hybrid, std::size_t j) const {
    return hybrid == Hybrid::full || by_class(hybrid, j) || (hybrid >= Hybrid::frequent && frequent_[j] != 0);
  }
  /// Whether the hybrid keeps j for the prompt's last query.
  bool keeps(Hybrid hybrid, std::size_t j) const {
    const bool local = hybrid == Hybrid::local && j + set_.n_local(received_.size()) >= received_.size();
    return local || keeps_column(hybrid, j);
  }

  void choose_frequent() {
    frequent_.assign(received_.size(), 0);
    std::vector<Candidate> candidates;
    for (std::size_t j = 0; j < received_.size(); ++j)
      if (!by_class(Hybrid::frequent, j))
        candidates.push_back({received_[j].mean(), static_cast<Position>(j), j});
    const std::size_t count = std::min(set_.n_frequent(received_.size()), candidates.size());
    frequent_first(count, candidates);
    for (std::size_t i = 0; i < count; ++i) frequent_[candidates[i].slot] = 1;
  }

  /// Returns the share of all prompt rows' attention that the hybrid keeps. The band does not depend on which
  /// columns are kept for every query, so one pass over the rows serves all hybrids.
  double recovered(Hybrid hybrid) const {
    double kept = 0, all = 0;
    for (std::size_t j = 0; j < received_.size(); ++j) {
      all += received_[j].attention;
      if (keeps_column(hybrid, j))
        kept += received_[j].attention;
      else if (hybrid == Hybrid::local)
        kept += bands_.mean(j);
    }
    return kept / all;
  }

  Hybrid cheapest() const {
    for (const Hybrid hybrid : {Hybrid::special, Hybrid::punctuation, Hybrid::frequent, Hybrid::local})
      if (recovered(hybrid) >= set_.recovery) return hybrid;
    return Hybrid::full;
  }

  CacheUnit unit_;
  Settings set_;
  ColumnSums columns_;
  BandSums bands_;
  std::size_t first_ = 0;  ///< position of the first row
  std::vector<std::uint8_t> classes_;
  std::vector<Received> received_;  ///< per row of the prompt
  std::vector<char> frequent_;
  Hybrid hybrid_ = Hybrid::full;
};

/// Counts column sums and sums of a band, from which every hybrid's share follows. A slot needs the attention
/// it received, its class, and its position, from which the number of queries that saw it follows.
Cost cost_of(const Params&, const CostShape& shape) {
  const double lanes = real(shape.kv_heads);
  Cost out;
  out.prompt_rows = kAllRows;
  out.decode_rows = true;
  out.scratch_bytes = whole_bytes(2 * lanes * real(shape.prompt) * kScoreBytes);
  out.metadata.lane_slot = kScoreBytes + kPositionBytes + 1;
  out.prompt =
      2 * prompt_sums(shape, kAllRows) + sorted(shape, sets_of({}, shape)) + moved(shape, shape.prompt);
  out.prompt.ops += 5 * lanes * real(shape.prompt);
  out.step.launches = 2;
  out.step_slot = {.ops = real(shape.query_heads) + 4 * lanes,
                   .bytes = lanes * (2 * kScoreBytes + kPositionBytes + 1)};
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "fastgen",
      .summary =
          "every KV head keeps the cheapest of special tokens, punctuation, frequent, local or all that "
          "recovers its attention",
      .paper =
          "Ge, Zhang, Liu, Zhang, Han, Gao, Model Tells You What to Discard: Adaptive KV Cache Compression "
          "for LLMs, ICLR 2024, https://arxiv.org/abs/2310.01801",
      .details =
          "When the prompt ends, each head takes the first of five nested rules whose mask keeps at least "
          "`recovery` of the attention of all prompt rows, averaged over the query heads that share it: "
          "special tokens; and punctuation; and the ceil(frequent * n) other columns of the largest mean "
          "attention over the rows that see them; and the last max(1, floor(local * n)) positions before "
          "each row; everything. Of equal means the newer token stays. n is the length so far, so while "
          "decoding both shares grow. When a token arrives, tokens that the rule no longer keeps are "
          "evicted; the arriving one always joins. It decides itself how much it keeps: no budget.",
      .departures =
          {{"paper: recovery 0.95 in its headline; cold-compress: 0.9", "0.9; recovery=0.95"},
           {"cold-compress: if no rule passes, even full by rounding, the most aggressive one wins",
            "full always passes"},
           {"cold-compress: a head of special tokens does not even store the current one",
            "the arriving token attends itself, and leaves when the next comes"},
           {"cold-compress: decoding judges frequency by a ring of the last 400 observations",
            "the mean over all queries that saw the token"},
           {"cold-compress: the fill mask uses the allocated length, so more is kept than was profiled",
            "the prompt's length"},
           {"paper: one query head per KV head", "means over the query heads that share a KV head"}},
      .params = {real_param("recovery", "0.9", {0, 1}, "what a head's rule must keep", "share of attention"),
                 real_param("frequent", "0.3", {0, 1}, "tokens kept for their mean attention",
                            "share of the length"),
                 real_param("local", "0.3", {0, 1}, "newest tokens kept", "share of the length"),
                 sinks_param(0), feedback_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true, .classes = true},
      .cost = cost_of,
      .rule = EvictionRule{.own_budget = true, .make = made<FastGen, Settings>}};
}

}  // namespace kvsim::policy::fastgen
