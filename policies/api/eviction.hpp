#pragma once
/// Defines an eviction policy and what it may see.
///
/// A *unit* is the smallest thing with its own resident set: one lane (layer, KV head), or a layer whose
/// lanes share one set. One Eviction object serves one unit and every budget of the study: the prompt is
/// observed once and ranked once. Decoding differs per budget, so each budget gets its own Decoder.
///
/// The feeder (a replayed trace, or a model running with the policy's cache) owns the resident set, the
/// counts and the metrics. It calls, in this order:
/// - observe(): blocks of prompt attention rows, if prompt_rows() asks for them; a feeder that does not have
///   all of them may call observe_columns() first and then passes rows_beside_columns() rows
/// - finish_prompt(): the prompt is complete
/// - start(B), once per budget: returns which prompt positions are kept, and the decoder for what follows
/// then for each generated token, with the unit's slots:
/// - Decoder::evict, before the arriving token's query attends: returns the slots to evict
/// - Decoder::observe, after the token's query has attended the residents, itself included
///
/// A policy with streams_prompt() is started before the prompt, with nothing resident, and the prompt's
/// tokens arrive one by one like generated ones.
///
/// A unit that a Decoder manages therefore never attends more than B positions (B + Part::overshoot for
/// rules that let a token attend first and evict one afterwards). A policy never sees the future, other
/// units, or the attention of a position that is not resident.
///
/// A layer with a sliding window of W tokens holds none that the next query cannot see. Its prompt is that of
/// the last min(P, W) tokens: rows, columns, keys and values of these alone, numbered from 0, the first of
/// them at position Prompt::first(). While tokens are generated, the one at position t - W leaves as t
/// arrives (Arrival::leaving). Positions in slots are those of the text. Where attention is within chunks,
/// the prompt is that of its last chunk, and all tokens leave as the first of another chunk arrives: Arrival
/// names one of them, and Decoder::close_slots() closes up behind the others.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

using Position = std::int32_t;

inline std::vector<Position> ascending(std::span<const Position> positions) {
  std::vector<Position> out(positions.begin(), positions.end());
  std::ranges::sort(out);
  return out;
}

/// A file of tables that were measured on other runs (policies/api/spec.hpp), as a policy asks for it.
struct CalibrationRequest {
  std::string file{};
  std::string maker{};      ///< the codec, with the parameters that its tables depend on: "kv_heads(heads=2)"
  bool own_traces = false;  ///< the run may be one of those that were measured
};

/// Tables that accompany a run and do not follow from it: learned scores, keep masks. The file parameters of
/// policies name them.
class Tables {
 public:
  /// One of the dims of of_head(): positions, at least 1 and at most as many as the run has.
  static constexpr std::size_t kPositions = std::numeric_limits<std::size_t>::max();
  /// In place of a file's name: what a model's second pass over this very prompt has given.
  static constexpr std::string_view kOfRun = "run";

  virtual ~Tables() = default;
  virtual bool has_second_pass() const { return false; }
  /// Throws Error(usage) where the name of `file` holds "{trace}" and there is no such file for the run.
  virtual void require_file(std::string_view) const {}
  /// Returns row [layer, kv_head] of a dataset [n_layers, n_kv_heads, n]. Throws Error(input) with file and
  /// dataset.
  virtual std::vector<float> row(std::string_view file, std::string_view dataset, int layer,
                                 int kv_head) const = 0;
  /// Returns entry [layer, kv_head] of a dataset [n_layers, n_kv_heads, dims...]. Throws Error(input) with
  /// file and dataset.
  virtual std::vector<float> of_head(std::string_view file, std::string_view dataset, int layer, int kv_head,
                                     std::span<const std::size_t> dims) const;
  /// Returns a small table of numbers per layer and head, [layers][heads], with rows as long as in the file
  /// (.json, .csv or .tsv). Throws Error(input) with the file.
  virtual std::vector<std::vector<double>> matrix(std::string_view file) const = 0;
  /// Returns what a calibration says of a KV head. Throws Error(input) with the file, and Error(usage) where
  /// another codec made it, or where it was measured on this very run.
  virtual std::vector<float> calibrated(const CalibrationRequest& request, std::string_view table, int layer,
                                        int kv_head) const;
};

/// Shape and identity of a unit.
struct CacheUnit {
  int layer = 0, n_layers = 1;
  int first_kv_head = 0;
  int n_lanes = 1;  ///< 1, or all KV heads of the layer
  int group = 1;    ///< query heads per KV head
  int head_dim = 0, value_dim = 0;
  /// The sliding window of the layer's attention: query i sees key j if i - span < j <= i; 0: every earlier
  /// key.
  std::size_t span = 0;
  /// Attention is within chunks of so many tokens (Llama 4): query i sees key j if j <= i and i / chunk = j /
  /// chunk in whole numbers; 0: it is not.
  std::size_t chunk = 0;
  std::uint64_t seed = 0;  ///< seed of the run; random policies combine it with layer, head, step, position
  const Tables* tables = nullptr;

  int n_query_heads() const { return n_lanes * group; }
  /// Returns how many of the `n` newest tokens the layer's attention reaches.
  std::size_t reach(std::size_t n) const {
    if (chunk > 0) return n == 0 ? 0 : (n - 1) % chunk + 1;
    return span == 0 ? n : std::min(n, span);
  }
  /// Whether the layer's attention reaches from a query back to a key.
  bool sees(std::size_t query, std::size_t key) const {
    if (chunk > 0) return query / chunk == key / chunk;
    return span == 0 || query - key < span;
  }
  /// Returns how many of the last `rows` rows of a prompt see a key.
  std::size_t seen_by(std::size_t key, std::size_t rows, std::size_t prompt) const {
    const std::size_t first = std::max(key, prompt - std::min(rows, prompt));
    std::size_t end = span == 0 ? prompt : std::min(prompt, key + span);
    if (chunk > 0) end = std::min(prompt, (key / chunk + 1) * chunk);
    return end > first ? end - first : 0;
  }
  /// Returns one of its lanes as a unit of its own.
  CacheUnit lane(int index) const {
    CacheUnit out = *this;
    out.first_kv_head += index;
    out.n_lanes = 1;
    return out;
  }
};

/// A block of prompt rows of one query head (0 .. unit.n_query_heads()-1). Queries and keys are numbered as
/// the prompt's rows.
/// p(i, j) = full softmax attention of query first_query + i on key j; 0 for keys it cannot see.
/// p.cols = first_query + p.rows: no row of the block sees a later key.
/// Blocks of one query head come in order of position. Every row at or after prompt_length - prompt_rows()
/// comes exactly once; earlier ones may come too when another policy asks for them.
struct PromptRows {
  int query_head = 0;
  std::size_t first_query = 0;
  std::size_t prompt_length = 0;  ///< of the prompt, so that a policy can tell which rows are the last ones
  MatrixView p;
  std::size_t first = 0;  ///< Prompt::first()
};

/// Attention that all prompt rows of one query head pay to each key: sums over rows i of p(i, j) and p(i,
/// j)^2.
struct PromptColumns {
  int query_head = 0;
  std::span<const double> sum, sum_squares;  ///< [prompt]
};

/// What kind of text a token is, as bits. A token may be several things or none.
enum TokenClass : std::uint8_t { kSpecialToken = 1, kPunctuation = 2 };

/// The finished prompt: values, and keys as the cache holds them (after RoPE), [prompt, dim] per lane of the
/// unit. Only what the spec's Needs asks for is there: asking for anything else throws Error(bug).
class Prompt {
 public:
  virtual ~Prompt() = default;
  virtual std::size_t length() const = 0;
  /// The position of row 0: 0, unless the layer's sliding window has left earlier tokens behind.
  virtual std::size_t first() const { return 0; }
  virtual std::size_t position(std::size_t row) const { return first() + row; }  ///< of a row
  /// Returns how many of the text's first `n` tokens are among the rows, as the first of them.
  std::size_t sinks(std::size_t n) const { return std::min(n - std::min(n, first()), length()); }
  virtual MatrixView keys(int lane) const = 0;
  virtual MatrixView values(int lane) const = 0;
  /// With Needs::queries. [prompt, head_dim] as attention uses them (after RoPE), before the scale.
  virtual MatrixView queries(int query_head) const;
  /// The rotation of keys and queries, row r as at position first() + r; without pairs there is none.
  virtual Rotary rotary() const;
  /// With Needs::queries. Factor on q.k before the softmax.
  virtual double scale() const;
  /// With Needs::queries. What attention makes of x = scale * q.k: cap * tanh(x / cap); 0: x.
  virtual double cap() const { return 0; }
  /// With Needs::queries. A logit that takes part in the softmax of each of the head's rows and gives
  /// nothing; -infinity: none.
  virtual float sink([[maybe_unused]] int query_head) const {
    return -std::numeric_limits<float>::infinity();
  }
  /// With Needs::classes. TokenClass bits per position, [prompt].
  virtual std::span<const std::uint8_t> classes() const;
  /// With Needs::surprises. -ln p of every token given those before it, [prompt]; NaN where nobody knows it,
  /// as of a text's first token.
  virtual std::span<const float> surprises() const;
  /// With Needs::output_weights. [value_dim, hidden]: the query head's share of the layer's output
  /// projection.
  virtual MatrixView output_weights(int query_head) const;
};

/// A token that is about to join a unit.
struct Arrival {
  Position position = 0;
  std::span<const Position> slots;  ///< position held by each slot, without the arriving token
  bool full = false;                ///< no slot is free: a token must be evicted
  MatrixView keys;                  ///< [n_lanes, head_dim]: the token's own keys
  MatrixView queries;               ///< [n_query_heads, head_dim], with Needs::queries
  std::uint8_t token_class = 0;     ///< TokenClass bits, with Needs::classes
  /// The slot whose token the layer's window leaves behind, or of a chunk the first: it is evicted whatever
  /// the policy says, and makes room for the arriving one.
  std::optional<std::size_t> leaving{};

  /// Returns the arrival as lane `lane` of a unit of several lanes sees it, with `group` query heads per
  /// lane.
  Arrival of_lane(std::size_t lane, std::size_t group) const;
};

/// One step of a unit, after its query has attended.
struct Step {
  Position position = 0;            ///< position of the query
  std::span<const Position> slots;  ///< position held by each slot, the query's own token included
  std::size_t own_slot = 0;         ///< slot of the query's own token
  /// [n_query_heads, slots]: raw attention of the full row on each resident, with Needs::decode_rows.
  MatrixView attention;
  /// [n_query_heads]: sum of that row, with a sink's share; raw / mass is what the compressed cache computes.
  std::span<const double> mass;
  MatrixView keys;     ///< [n_lanes, head_dim]: the token's own keys
  MatrixView values;   ///< [n_lanes, value_dim]: the token's own values
  MatrixView queries;  ///< [n_query_heads, head_dim], with Needs::queries
  /// Of the query's own token, with Needs::surprises (Prompt::surprises()).
  float surprise = std::numeric_limits<float>::quiet_NaN();

  /// Returns the step as lane `lane` of a unit of several lanes sees it, with `group` query heads per lane.
  Step of_lane(std::size_t lane, std::size_t group) const;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends to `victims` (empty when called) the slots to evict before the arriving token's query attends:
  /// distinct, each < arrival.slots.size(), at least one if arrival.full. The arriving token takes the slot
  /// of the first victim; the slots of the others close up, and those behind them move down in order. Without
  /// victims the arriving token takes a new slot behind the last.
  virtual void evict(const Arrival& arrival, std::vector<std::size_t>& victims) = 0;
  virtual void observe(const Step& /*step*/) {}
  /// One score per slot of the last step, higher is kept; empty when the policy does not rank by one.
  virtual std::span<const double> scores() const { return {}; }
  // The next two are for policies that wrap a scored decoder (Eviction::decoder) and choose the victims
  // themselves instead of calling evict().
  /// Brings scores up to date that depend on the token that arrives at a full unit.
  virtual void rescore(const Arrival& /*arrival*/) {}
  /// Closes up per-slot state when several tokens are evicted: also when the window leaves one behind that
  /// evict() has not named among its own.
  virtual void close_slots(std::span<const std::size_t> /*victims*/) {}
};

inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

/// Observes a prompt: its attention rows, then its keys and values.
class PromptObserver {
 public:
  virtual ~PromptObserver() = default;
  /// Returns how many of the last prompt rows observe() must see: 0, a window, or kAllRows.
  virtual std::size_t prompt_rows() const { return 0; }
  virtual void observe(const PromptRows& /*rows*/) {}
  /// Returns the same once observe_columns() has been called. It is less for observers that need only the
  /// sums of earlier rows; they decide as they would from the rows, up to the rounding of the sums.
  virtual std::size_t rows_beside_columns() const { return prompt_rows(); }
  /// Comes for every query head of the unit, before any row.
  virtual void observe_columns(const PromptColumns& /*columns*/) {}
  virtual void finish_prompt(const Prompt& prompt) = 0;
};

/// The state in which one budget begins.
struct Start {
  /// Distinct rows of the prompt, ascending, at most min(budget + overshoot, prompt length); slot i of the
  /// unit starts with the token of row keep[i]. There are fewer only if the rule itself stops earlier, and
  /// its spec says so.
  std::vector<Position> keep{};
  std::unique_ptr<Decoder> decoder{};  ///< null: generated tokens are only appended
};

/// Protected positions are kept whatever their score: the first `sinks` of the sequence and the last
/// `window`. While decoding, the arriving token joins the window and pushes its oldest member out of it, so a
/// unit with budget = sinks + window (window >= 1) always has exactly one slot to give.
struct Protection {
  std::size_t sinks = 0, window = 0;
};

class Eviction : public PromptObserver {
 public:
  /// Whether the tokens of the prompt arrive one by one: then start() comes first and keeps nothing, and
  /// observe() and finish_prompt() are not called.
  virtual bool streams_prompt() const { return false; }
  virtual Start start(std::size_t budget) const = 0;
  /// Valid after finish_prompt(): one score per prompt position, higher is kept (whatever protection() says);
  /// empty when the policy does not rank by a score.
  virtual std::span<const double> scores() const { return {}; }
  /// Returns what the policy keeps of a prompt of `prompt` tokens, whatever the scores, in a unit of `budget`
  /// slots. start(), policies that wrap this one, and allocations all use this answer. It follows from the
  /// parameters alone, so it is known before the prompt is; a larger budget protects what a smaller one does,
  /// and at most one position more per slot.
  virtual Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const { return {}; }
  // The rest is for policies that wrap a scored policy, after finish_prompt().
  /// Marks the prompt positions that the policy keeps whatever their score, besides the protected ones, which
  /// are already marked; in all at most min(budget, prompt). Only for policies that keep and evict single
  /// positions.
  virtual void reserve(std::size_t /*budget*/, std::vector<char>& /*stays*/) const {}
  /// Returns how many attention rows one score adds up. Divided by it, scores of a policy that ranks by
  /// attention are on the scale of a mean row. 1 for means, and for scores that are not attention.
  virtual double rows_in_score(std::size_t /*prompt*/) const { return 1; }
  /// Returns its decoder over rows of the prompt that the caller chose, in slots [0, slots.size()); null: it
  /// only appends.
  virtual std::unique_ptr<Decoder> decoder(std::size_t /*budget*/,
                                           std::span<const Position> /*slots*/) const {
    return nullptr;
  }
};

}  // namespace kvsim::policy
