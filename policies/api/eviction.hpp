#pragma once
/// What an eviction policy is and may see.
///
/// A *unit* is the smallest thing with its own resident set: one lane (layer, KV head), or a layer whose
/// lanes share one set. One Eviction object serves one unit and every budget of the study: the prompt is
/// observed once and ranked once. Decoding differs per budget, so each budget gets its own Decoder.
///
/// The feeder (a replayed trace, or a model running with the policy's cache) owns the resident set, the
/// counts and the metrics. It calls, in this order:
///   observe()        blocks of prompt attention rows, if prompt_rows() asked for them
///   finish_prompt()  the prompt is complete
///   compress(B)      once per budget: which positions the prompt leaves
///   decoder(B)       once per budget; nullptr: generated tokens are only appended
/// then for each generated token, with the unit's slots:
///   Decoder::evict    only when the arriving token finds the unit full: name the slot it takes
///   Decoder::observe  after the token's query has attended the residents, itself included
/// So a unit never attends more than B positions once a Decoder manages it. A policy never sees the future,
/// other units, or the attention of a position that is gone.
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

using Position = std::int32_t;

/// Shape and identity of a unit.
struct Unit {
  int layer = 0, n_layers = 1;
  int first_kv_head = 0;
  int n_lanes = 1;  ///< 1, or all KV heads of the layer
  int group = 1;    ///< query heads per KV head
  int head_dim = 0, value_dim = 0;
  std::uint64_t seed = 0;  ///< of the run; random policies combine it with layer, head, step, position

  int n_query_heads() const { return n_lanes * group; }
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

/// The finished prompt. Keys as the cache holds them (after RoPE), values; per lane of the unit, [prompt,
/// dim].
class Prompt {
 public:
  virtual ~Prompt() = default;
  virtual std::size_t length() const = 0;
  virtual MatrixView keys(int lane) const = 0;
  virtual MatrixView values(int lane) const = 0;
};

/// A token that is about to join a full unit.
struct Arrival {
  Position position = 0;
  std::span<const Position> slots;  ///< position held by each slot; arriving token not among them
};

/// One attended step of a unit.
struct Step {
  Position position = 0;            ///< of the query
  std::span<const Position> slots;  ///< position held by each slot, the query's own token included
  std::size_t own_slot = 0;         ///< slot of the query's own token
  MatrixView attention;  ///< [n_query_heads, slots]: raw attention of the full row on each resident
  std::span<const double>
      mass;           ///< [n_query_heads]: sum of that row; raw / mass is what the compressed cache computes
  MatrixView keys;    ///< [n_lanes, head_dim]: the token's own keys
  MatrixView values;  ///< [n_lanes, value_dim]: the token's own values
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Slot whose token leaves; the arriving token takes its place. Must be < arrival.slots.size().
  virtual std::size_t evict(const Arrival& arrival) = 0;
  virtual void observe(const Step& /*step*/) {}
};

inline constexpr std::size_t kAllRows = std::numeric_limits<std::size_t>::max();

class Eviction {
 public:
  virtual ~Eviction() = default;
  /// How many of the last prompt rows observe() must see: 0, a window, or kAllRows.
  virtual std::size_t prompt_rows() const { return 0; }
  virtual void observe(const PromptRows& /*rows*/) {}
  virtual void finish_prompt(const Prompt& prompt) = 0;
  /// Fills `keep` (size min(budget, prompt length)) with distinct prompt positions, ascending.
  /// Slot i of the unit starts with keep[i].
  virtual void compress(std::size_t budget, std::span<Position> keep) const = 0;
  /// State for the decode phase of one budget; `slots`: what compress() left.
  virtual std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const {
    (void)budget, (void)slots;
    return nullptr;
  }
};

}  // namespace kvsim::policy
