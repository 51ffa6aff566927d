#pragma once
/// What an eviction policy is and may see.
///
/// A *unit* is the smallest thing with its own resident set: one lane (layer, KV head), or a layer whose
/// lanes share one set. One Eviction object serves one unit and every budget of the study: the prompt is
/// observed once and ranked once. Decoding differs per budget, so each budget gets its own Decoder.
///
/// The feeder (a replayed trace, or a model running with the policy's cache) owns the resident set, the
/// counts and the metrics. It calls, in this order:
///   observe()        blocks of prompt attention rows, if prompt_rows() asked for them; a feeder without all
///                    of them may call observe_columns() first, and then shows rows_beside_columns() of them
///   finish_prompt()  the prompt is complete
///   start(B)         once per budget: which positions the prompt leaves, and who manages what follows
/// then for each generated token, with the unit's slots:
///   Decoder::evict    before the arriving token's query attends: who leaves
///   Decoder::observe  after the token's query has attended the residents, itself included
/// A policy that streams_prompt() is started before the prompt instead, with nothing resident, and the
/// prompt's tokens arrive one by one like generated ones.
/// So a unit never attends more than B positions once a Decoder manages it (B + PolicySpec::overshoot, for
/// rules that let a token attend first and drop one afterwards). A policy never sees the future, other units,
/// or the attention of a position that is gone.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

using Position = std::int32_t;

/// Numbers that accompany a run instead of following from it: learned scores, keep masks. Where a policy's
/// file parameters lead.
class Tables {
 public:
  virtual ~Tables() = default;
  /// Row [layer, kv_head] of a dataset [n_layers, n_kv_heads, n]. Throws Error(input) with file and dataset.
  virtual std::vector<float> row(std::string_view file, std::string_view dataset, int layer,
                                 int kv_head) const = 0;
  /// A small table of numbers per layer and head, [layers][heads], rows as long as the file has them: .json,
  /// .csv or .tsv. Throws Error(input) with the file.
  virtual std::vector<std::vector<double>> matrix(std::string_view file) const = 0;
};

/// Shape and identity of a unit.
struct CacheUnit {
  int layer = 0, n_layers = 1;
  int first_kv_head = 0;
  int n_lanes = 1;  ///< 1, or all KV heads of the layer
  int group = 1;    ///< query heads per KV head
  int head_dim = 0, value_dim = 0;
  /// Query i sees key j if i - span < j <= i: the sliding window of the layer's attention; 0: every earlier
  /// key.
  std::size_t span = 0;
  std::uint64_t seed = 0;  ///< of the run; random policies combine it with layer, head, step, position
  const Tables* tables = nullptr;

  int n_query_heads() const { return n_lanes * group; }
  /// Whether the layer's attention reaches from a query back to a key.
  bool sees(std::size_t query, std::size_t key) const { return span == 0 || query - key < span; }
  /// How many of the last `rows` rows of a prompt see a key.
  std::size_t seen_by(std::size_t key, std::size_t rows, std::size_t prompt) const {
    const std::size_t first = std::max(key, prompt - std::min(rows, prompt));
    const std::size_t end = span == 0 ? prompt : std::min(prompt, key + span);
    return end > first ? end - first : 0;
  }
  /// One of its lanes as a unit of its own.
  CacheUnit lane(int index) const {
    CacheUnit out = *this;
    out.first_kv_head += index;
    out.n_lanes = 1;
    return out;
  }
};

/// A block of prompt rows of one query head (0 .. unit.n_query_heads()-1).
/// p(i, j) = full softmax attention of query first_query + i on key j; 0 for keys it cannot see.
/// p.cols = first_query + p.rows: no row of the block sees a later key.
/// Blocks of one query head come in order of position; every row at or after prompt_length - prompt_rows()
/// comes exactly once, earlier ones may come too when another policy asked for them.
struct PromptRows {
  int query_head = 0;
  std::size_t first_query = 0;
  std::size_t prompt_length = 0;  ///< P, so that a policy can tell which rows are the last ones
  MatrixView p;
};

/// What all prompt rows of one query head paid to each key, in sum: over rows i, of p(i, j) and of p(i, j)^2.
struct PromptColumns {
  int query_head = 0;
  std::span<const double> sum, sum_squares;  ///< [prompt]
};

/// What kind of text a token is, as bits. A token may be several things or none.
enum TokenClass : std::uint8_t { kSpecialToken = 1, kPunctuation = 2 };

/// The finished prompt. Keys as the cache holds them (after RoPE), values; per lane of the unit, [prompt,
/// dim]. What a spec's Needs does not ask for is not there: asking throws Error(bug).
class Prompt {
 public:
  virtual ~Prompt() = default;
  virtual std::size_t length() const = 0;
  virtual MatrixView keys(int lane) const = 0;
  virtual MatrixView values(int lane) const = 0;
  /// Needs::queries. [prompt, head_dim] as attention used them (after RoPE), before the scale.
  virtual MatrixView queries(int query_head) const;
  /// Needs::queries. How keys and queries were turned, row r as at position r; no pairs: not at all.
  virtual Rotary rotary() const;
  /// Needs::queries. Factor on q.k before the softmax.
  virtual double scale() const;
  /// Needs::classes. TokenClass bits per position, [prompt].
  virtual std::span<const std::uint8_t> classes() const;
  /// Needs::output_weights. [value_dim, hidden]: the query head's share of the layer's output projection.
  virtual MatrixView output_weights(int query_head) const;
};

/// A token that is about to join a unit.
struct Arrival {
  Position position = 0;
  std::span<const Position> slots;  ///< position held by each slot; arriving token not among them
  bool full = false;                ///< no slot is free: somebody must leave
  MatrixView keys;                  ///< [n_lanes, head_dim]: the token's own keys
  MatrixView queries;               ///< [n_query_heads, head_dim], with Needs::queries
  std::uint8_t token_class = 0;     ///< TokenClass bits, with Needs::classes

  /// The arrival as lane `lane` of a unit of several sees it, `group` query heads per lane.
  Arrival of_lane(std::size_t lane, std::size_t group) const;
};

/// One attended step of a unit.
struct Step {
  Position position = 0;            ///< of the query
  std::span<const Position> slots;  ///< position held by each slot, the query's own token included
  std::size_t own_slot = 0;         ///< slot of the query's own token
  MatrixView attention;  ///< [n_query_heads, slots]: raw attention of the full row on each resident, with
                         ///< Needs::decode_rows
  std::span<const double>
      mass;           ///< [n_query_heads]: sum of that row; raw / mass is what the compressed cache computes
  MatrixView keys;    ///< [n_lanes, head_dim]: the token's own keys
  MatrixView values;  ///< [n_lanes, value_dim]: the token's own values

  /// The step as lane `lane` of a unit of several sees it, `group` query heads per lane.
  Step of_lane(std::size_t lane, std::size_t group) const;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends to `victims` (empty when called) the slots whose tokens leave before the arriving token's query
  /// attends: distinct, each < arrival.slots.size(), at least one if arrival.full. The arriving token takes
  /// the slot of the first; the slots of the others close up, those behind moving down in order. If nobody
  /// leaves it takes a new slot behind the last.
  virtual void evict(const Arrival& arrival, std::vector<std::size_t>& victims) = 0;
  virtual void observe(const Step& /*step*/) {}
  /// One score per slot of the last step, higher is kept; empty when the policy does not rank by one.
  virtual std::span<const double> scores() const { return {}; }
  // For those that wrap a scored decoder (Eviction::decoder) and choose the victims themselves, instead of
  // evict():
  /// Scores that depend on who arrives at a full unit are brought up to date.
  virtual void rescore(const Arrival& /*arrival*/) {}
  /// Per-slot state closes up when several leave.
  virtual void close_slots(std::span<const std::size_t> /*victims*/) {}
};

inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

/// Something that looks at the prompt.
class PromptObserver {
 public:
  virtual ~PromptObserver() = default;
  /// How many of the last prompt rows observe() must see: 0, a window, or kAllRows.
  virtual std::size_t prompt_rows() const { return 0; }
  virtual void observe(const PromptRows& /*rows*/) {}
  /// The same once observe_columns() has been called: less for those to whom earlier rows matter in sum
  /// alone, which decide as they would have on the rows, to the rounding of the sums.
  virtual std::size_t rows_beside_columns() const { return prompt_rows(); }
  /// For every query head of the unit, before any row.
  virtual void observe_columns(const PromptColumns& /*columns*/) {}
  virtual void finish_prompt(const Prompt& prompt) = 0;
};

/// How one budget begins.
struct Start {
  /// Distinct prompt positions, ascending, at most min(budget + overshoot, prompt length); slot i of the unit
  /// starts with keep[i]. Fewer than that only if the rule itself stops earlier, and its spec says so.
  std::vector<Position> keep{};
  std::unique_ptr<Decoder> decoder{};  ///< null: generated tokens are only appended
};

/// Protected positions are kept whatever their score: the first `sinks` of the sequence and the last
/// `window`. While decoding, the token that arrives belongs to the window and pushes its oldest member out of
/// it, so a unit with budget = sinks + window (window >= 1) always has exactly one slot to give.
struct Protection {
  std::size_t sinks = 0, window = 0;
};

class Eviction : public PromptObserver {
 public:
  /// Tokens of the prompt arrive one by one: start() comes first and keeps nothing, observe() and
  /// finish_prompt() are not called.
  virtual bool streams_prompt() const { return false; }
  virtual Start start(std::size_t budget) const = 0;
  /// After finish_prompt(): one score per prompt position, higher is kept (whatever protection says); empty
  /// when the policy does not rank by one.
  virtual std::span<const double> scores() const { return {}; }
  /// What it keeps of a prompt so long, whatever the scores, in a unit with so many slots: the one answer for
  /// start(), for policies that wrap this one, and for allocations. It follows from the parameters alone, so
  /// it can be asked before the prompt is there; a larger budget protects what a smaller one does, and at
  /// most one position more per slot.
  virtual Protection protection(std::size_t /*budget*/, std::size_t /*prompt*/) const { return {}; }
  // For those that wrap a scored policy, after finish_prompt():
  /// Marks prompt positions that it keeps besides the protected ones, marked already, whatever their score;
  /// in all at most min(budget, prompt). Only where positions stay and leave one by one.
  virtual void reserve(std::size_t /*budget*/, std::vector<char>& /*stays*/) const {}
  /// How many attention rows one score adds up: divided by it, scores of a policy that ranks by attention are
  /// on the scale of a mean row. 1 for means, and where scores are no attention.
  virtual double rows_in_score(std::size_t /*prompt*/) const { return 1; }
  /// Its decoder over prompt positions that others chose, in slots [0, slots.size()). Nullptr: it appends.
  virtual std::unique_ptr<Decoder> decoder(std::size_t /*budget*/,
                                           std::span<const Position> /*slots*/) const {
    return nullptr;
  }
};

}  // namespace kvsim::policy
