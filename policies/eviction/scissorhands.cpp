// Keeps tokens that were pivotal for recent queries.
#include <algorithm>
#include <deque>

#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"

namespace kvsim::policy::scissorhands {
namespace {

/// The last prompt rows, averaged over a unit's query heads: rows * prompt floats.
class MeanRows {
 public:
  MeanRows(int n_query_heads, std::size_t rows)
      : weight_(1 / static_cast<float>(n_query_heads)), rows_(rows) {}

  void add(const PromptRows& block) {
    if (mean_.empty()) {
      length_ = block.prompt_length;
      mean_.resize(std::min(rows_, length_) * length_);
    }
    const std::size_t first = query(0);
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      const std::size_t position = block.first_query + i;
      if (position < first) continue;
      float* const mean = mean_.data() + (position - first) * length_;
      for (std::size_t j = 0; j < block.p.cols; ++j) mean[j] += weight_ * block.p(i, j);
    }
  }

  /// Number of rows held: the last min(rows, prompt).
  std::size_t size() const { return length_ == 0 ? 0 : mean_.size() / length_; }
  /// Position of the query of row i.
  std::size_t query(std::size_t i) const { return length_ - size() + i; }
  /// Row i, [prompt].
  std::span<const float> row(std::size_t i) const { return std::span(mean_).subspan(i * length_, length_); }

 private:
  float weight_;
  std::size_t rows_, length_ = 0;
  std::vector<float> mean_;
};

/// What is counted for a token: the queries that attended it little, or much, or much as a share of all that
/// saw it.
enum class Count { low, pivotal, share };

/// What a query's attention is compared with: the average over all keys before it, or over the resident ones.
enum class Threshold { position, held };

enum class PromptRule { stream, rank, compress };

struct Settings {
  Count count = Count::low;
  Threshold threshold = Threshold::position;
  Feedback feedback = Feedback::renorm;
  std::size_t history = 0;
  bool fill_tie = false;
};

Settings settings_of(const Params& params) {
  const std::string& count = params.word("count");
  return {.count = count == "low"       ? Count::low
                   : count == "pivotal" ? Count::pivotal
                                        : Count::share,
          .threshold = params.word("threshold") == "position" ? Threshold::position : Threshold::held,
          .feedback = feedback_of(params),
          .history = params.count("history"),
          .fill_tie = params.flag("quirk_fill_tie")};
}

PromptRule prompt_rule(const Params& params) {
  const std::string& word = params.word("prompt");
  return word == "stream" ? PromptRule::stream : word == "rank" ? PromptRule::rank : PromptRule::compress;
}

bool is_pivotal(double attention, std::size_t keys) {
  return attention * static_cast<double>(keys) >= 1;
}

/// The last queries, and the tokens for which each was a pivotal moment.
class Record {
 public:
  explicit Record(std::size_t history) : history_(history) {}

  /// Adds a query at `position`; pivotal[slot] says whether the slot's token was pivotal for it.
  void add(Position position, std::span<const Position> slots, std::vector<char> pivotal) {
    if (queries_.size() == history_) forget_oldest(slots);
    count_.resize(slots.size());
    for (std::size_t slot = 0; slot < slots.size(); ++slot) count_[slot] += pivotal[slot] ? 1U : 0U;
    queries_.push_back({position, std::move(pivotal)});
  }
  /// Resets the count of a slot that takes a new token.
  void open(std::size_t slot) {
    count_.resize(std::max(count_.size(), slot + 1));
    count_[slot] = 0;
  }
  void close_slots(std::span<const std::size_t> victims) {
    const std::vector<std::size_t> staying = staying_slots(victims, count_.size());
    for (Query& query : queries_) {
      query.pivotal.resize(count_.size());
      keep_slots(query.pivotal, staying);
    }
    keep_slots(count_, staying);
  }

  double score(Count count, Position position, std::size_t slot) const {
    // Positions of queries are consecutive.
    const std::size_t since =
        queries_.empty() ? 0 : static_cast<std::size_t>(queries_.back().position - position) + 1;
    const auto seen = static_cast<double>(std::min(queries_.size(), since));
    const auto pivotal = static_cast<double>(count_[slot]);
    if (count == Count::low) return pivotal - seen;
    if (count == Count::pivotal || seen == 0) return pivotal;
    return pivotal / seen;
  }

 private:
  struct Query {
    Position position;
    std::vector<char> pivotal;  ///< by slot; the entry of a slot whose token came after the query belongs to
                                ///< an evicted token
  };

  void forget_oldest(std::span<const Position> slots) {
    const Query& oldest = queries_.front();
    for (std::size_t slot = 0; slot < std::min(slots.size(), oldest.pivotal.size()); ++slot)
      if (slots[slot] <= oldest.position && oldest.pivotal[slot]) --count_[slot];
    queries_.pop_front();
  }

  std::size_t history_;
  std::deque<Query> queries_;
  std::vector<std::uint32_t> count_;  ///< per slot: pivotal moments among queries_
};

class ScissorhandsDecoder final : public ScoredDecoder {
 public:
  ScissorhandsDecoder(const Settings& settings, const CacheUnit& unit, const KeepRule& selection,
                      Record record, std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)),
        settings_(settings),
        unit_(unit),
        record_(std::move(record)) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    Arrival as_seen = arrival;
    as_seen.full = arrival.full || (settings_.fill_tie && beaten_by_free_slot(arrival));
    ScoredDecoder::evict(as_seen, victims);
  }

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    record_.open(step.own_slot);
    row_.assign(step.slots.size(), 0);
    add_attention(step, settings_.feedback, Group::mean, 1, row_);
    const std::size_t keys = settings_.threshold == Threshold::position
                                 ? unit_.reach(static_cast<std::size_t>(step.position) + 1)
                                 : step.slots.size();
    std::vector<char> pivotal(row_.size());
    for (std::size_t slot = 0; slot < row_.size(); ++slot) pivotal[slot] = is_pivotal(row_[slot], keys);
    record_.add(step.position, step.slots, std::move(pivotal));
    for (std::size_t slot = 0; slot < scores.size(); ++slot)
      scores[slot] = record_.score(settings_.count, step.slots[slot], slot);
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    record_.close_slots(victims);
  }

 private:
  bool beaten_by_free_slot(const Arrival& arrival) const {
    for (std::size_t slot = 0; slot < arrival.slots.size(); ++slot)
      if (scores()[slot] <= 0 && !is_protected(arrival, arrival.slots[slot])) return true;
    return false;
  }

  Settings settings_;
  CacheUnit unit_;
  Record record_;
  std::vector<double> row_;
};

class Scissorhands final : public ScoredEviction {
 public:
  Scissorhands(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        settings_(settings_of(params)),
        prompt_(prompt_rule(params)),
        rows_(unit.n_query_heads(), settings_.history),
        columns_(unit.n_query_heads(), kAllRows),
        end_(unit.n_query_heads(), kCompressorWindow) {}

  std::size_t prompt_rows() const override {
    return prompt_ == PromptRule::compress ? kAllRows : settings_.history;
  }

  void observe(const PromptRows& rows) override {
    if (prompt_ == PromptRule::rank) return rows_.add(rows);
    columns_.add(rows);
    end_.add(rows);
  }
  std::size_t rows_beside_columns() const override {
    return prompt_ == PromptRule::compress ? kCompressorWindow : settings_.history;
  }
  void observe_columns(const PromptColumns& columns) override {
    if (prompt_ == PromptRule::compress) columns_.take(columns.query_head, columns.sum);
  }

 private:
  // As in cold-compress's prompt compressor.
  static constexpr std::size_t kCompressorWindow = 16;
  static constexpr Pooling kCompressorPool{.kind = Pooling::Kind::average, .kernel = 5, .padded = false};

  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t length = prompt.length();
    first_ = static_cast<Position>(prompt.first());
    if (prompt_ == PromptRule::compress) {
      std::vector<double> out = window_score(end_, kCompressorWindow, length, kCompressorPool, Group::mean);
      const double best = *std::max_element(out.begin(), out.end());
      std::fill(out.end() - static_cast<std::ptrdiff_t>(std::min(kCompressorWindow, length)), out.end(),
                best + 1);
      return out;
    }
    std::vector<Position> all(length);
    for (std::size_t j = 0; j < length; ++j) all[j] = static_cast<Position>(j);
    return scores_in(record_of(all), all);
  }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    Record record = record_of(slots);
    std::vector<double> scores = scores_in(record, slots);
    return std::make_unique<ScissorhandsDecoder>(settings_, unit(), selection(budget), std::move(record),
                                                 std::move(scores));
  }

  /// Returns the record of the rows of the prompt that are kept.
  Record record_of(std::span<const Position> slots) const {
    Record record(settings_.history);
    std::vector<Position> held(slots.begin(), slots.end());
    for (Position& position : held) position += first_;
    if (prompt_ == PromptRule::compress) {
      const std::vector<double> sums = columns_.mean();
      std::vector<char> pivotal;
      for (const Position position : slots)
        pivotal.push_back(is_pivotal(
            sums[static_cast<std::size_t>(position)] / static_cast<double>(sums.size()), slots.size()));
      record.add(first_ + static_cast<Position>(sums.size()) - 1, held, std::move(pivotal));
    }
    for (std::size_t i = 0; prompt_ == PromptRule::rank && i < rows_.size(); ++i) {
      const std::size_t query = rows_.query(i);
      std::vector<char> pivotal;
      for (const Position position : slots)
        pivotal.push_back(
            static_cast<std::size_t>(position) <= query &&
            is_pivotal(static_cast<double>(rows_.row(i)[static_cast<std::size_t>(position)]), query + 1));
      record.add(first_ + static_cast<Position>(query), held, std::move(pivotal));
    }
    return record;
  }

  std::vector<double> scores_in(const Record& record, std::span<const Position> slots) const {
    std::vector<double> out;
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      out.push_back(record.score(settings_.count, first_ + slots[slot], slot));
    return out;
  }

  Settings settings_;
  Position first_ = 0;  ///< of the first row
  PromptRule prompt_;
  MeanRows rows_;
  ColumnSums columns_, end_;
};

Needs needs_of(const Params& params) {
  const PromptRule prompt = prompt_rule(params);
  return {.prompt_rows = prompt == PromptRule::stream ? RowNeed::none
                         : prompt == PromptRule::rank ? RowNeed::window
                                                      : RowNeed::all,
          .decode_rows = true};
}

/// A slot keeps a bit per query of the history, so that the oldest can be subtracted, and their count: two
/// bytes, which is all that the search reads.
Cost cost_of(const Params& params, const CostShape& shape) {
  constexpr std::uint64_t kCountBytes = 2;
  const std::size_t history = params.count("history");
  const double sets = sets_of(params, shape).count;
  Scoring scoring;
  scoring.unread = (history + 7) / 8;
  scoring.state = scoring.unread + kCountBytes;
  scoring.prompt_rows = prompt_rule(params) == PromptRule::compress ? kAllRows : history;
  scoring.prompt = prompt_sums(shape, scoring.prompt_rows);
  scoring.decode_rows = true;
  scoring.passes = 2;
  // One bit is set and another subtracted.
  scoring.slot = {.ops = real(shape.query_heads) + 3 * sets, .bytes = sets * (kCountBytes + 2.0 / 8)};
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "scissorhands",
      .summary = "drops half of the cache at once: those that the last queries found least pivotal",
      .paper =
          "Liu, Desai, Liao, Wang, Xie, Xu, Kyrillidis, Shrivastava, Scissorhands: Exploiting the "
          "Persistence of Importance Hypothesis for LLM KV Cache Compression at Test Time, NeurIPS 2023, "
          "https://arxiv.org/abs/2305.17118",
      .details =
          "A query finds a token pivotal if its attention, averaged over the unit's query heads, is at least "
          "the average 1/t. When the cache is full, the floor(drop * B) tokens leave that most of the last "
          "`history` queries did not find pivotal; the last `window` positions stay. count=pivotal drops "
          "those that fewest found pivotal, count=share those that the smallest share of the queries that "
          "saw them did: the three agree when all tokens were seen equally often.",
      .departures =
          {{"paper: the pseudo-code counts attention above 1/t under a comment that speaks of low scores, "
            "and its slices contradict the text",
            "low attention is counted and the most counted leave; count=pivotal is the other reading"},
           {"paper: nothing on grouped queries",
            "the mean over the heads that share a KV head, as cold-compress"},
           {"paper: later layers get more", "an allocation's business"},
           {"cold-compress: share of at most 400 observations, 1/n, one token at a time, the prompt cut by a "
            "rule like SnapKV's",
            "scissorhands.cold_compress"},
           {"cold-compress: a free slot counts like a token that was never pivotal and loses the tie, so "
            "that the cache does not fill",
            "free slots are filled first; quirk_fill_tie=true"},
           {"KVCache-Factory: a decayed sum of attention", "not this policy"}},
      .params =
          {count_param("history", "400", {1, 1 << 20}, "how many of the last queries are counted", "queries"),
           choice_param("count", "low", {"low", "pivotal", "share"},
                        "what is counted of a token: queries with low attention, with pivotal attention, or "
                        "the latter as a share of those that saw it"),
           choice_param("threshold", "position", {"position", "held"},
                        "pivotal attention is at least the average over all keys so far, or over those held"),
           sinks_param(0), window_param(10), drop_param("0.5"), feedback_param(), unit_param("lane"),
           phase_param(),
           choice_param("prompt", "stream", {"stream", "rank", "compress"},
                        "the prompt passes through the cache, is ranked by its last rows, or is cut by the "
                        "pooled attention of its last 16 rows and then counts as one query"),
           flag_param("quirk_fill_tie", "false",
                      "a token is evicted for every arriving one while an unprotected score is 0 or less, "
                      "free slots or not"),
           tie_param()},
      .needs_of = needs_of,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Scissorhands>}};
}

}  // namespace kvsim::policy::scissorhands
