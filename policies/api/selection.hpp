#pragma once
/// Defines a selection: which of the tokens that are stored a query reads.
///
/// An eviction decides what is stored; a selection leaves that as it is and names what the attention of one
/// step reads of it. A Selection serves one unit (policies/api/eviction.hpp): it observes the prompt once,
/// for every cache of the unit. Each cache gets its own Selector, which has an index of what the cache holds.
/// The prompt is processed with full attention; every later query reads what the selector names. The feeder
/// calls:
/// - Selection::observe(), finish_prompt(): as an eviction's
/// - Selector::begin(): the prompt has been cut, and the cache holds what is kept of it
/// then for each step:
/// - Selector::joined(): a token has joined the cache, and its query is about to attend; it comes not at a
/// step
///   that asks the last prompt token again
/// - Selector::select(): names the slots that its queries read
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/representation.hpp"

namespace kvsim::policy {

/// The queries of one step of a unit.
struct Asking {
  Position position = 0;  ///< of the token whose queries these are
  /// Slot of that token; none where it is the last prompt token, asked again after it has been evicted. Then
  /// it is read beside the slots.
  std::optional<std::size_t> own_slot{};
  MatrixView queries{};  ///< [n_query_heads, head_dim], after RoPE
  double scale = 1;      ///< factor on q.k before the softmax
  double cap = 0;        ///< of scale * q.k: attention takes cap * tanh(scale * q.k / cap); 0: as it is
};

/// What the queries of one step read.
class Reads {
 public:
  /// Empties the sets of `n_query_heads` heads.
  void begin(std::size_t n_query_heads) {
    sets_.resize(n_query_heads);
    for (std::vector<std::size_t>& set : sets_) set.clear();
    index_bits = 0;
  }
  std::size_t heads() const { return sets_.size(); }
  /// The slots that a query head of the unit reads: distinct, in any order. The feeder adds the slot of the
  /// query's own token where it is missing: a token always reads itself.
  std::vector<std::size_t>& of(std::size_t query_head) { return sets_[query_head]; }
  const std::vector<std::size_t>& of(std::size_t query_head) const { return sets_[query_head]; }
  /// The head reads every slot.
  void everything(std::size_t query_head, std::size_t slots) {
    std::vector<std::size_t>& set = sets_[query_head];
    set.resize(slots);
    for (std::size_t slot = 0; slot < slots; ++slot) set[slot] = slot;
  }
  /// Every head does.
  void everything(std::size_t slots) {
    for (std::size_t head = 0; head < heads(); ++head) everything(head, slots);
  }

  /// What choosing has read of the index at this step, in all lanes of the unit together. Query heads that
  /// share a KV head read what they have in common once.
  std::uint64_t index_bits = 0;

 private:
  std::vector<std::vector<std::size_t>> sets_;
};

class Selector {
 public:
  virtual ~Selector() = default;
  virtual void begin(const Prompt& /*prompt*/, const StoredTokens& /*tokens*/) {}
  /// A token has joined `own_slot`, a new one behind the last or that of a token that has been evicted. The
  /// slots from `moved_from` on may hold other tokens than before, too; tokens.slots(): none does.
  virtual void joined(std::size_t /*own_slot*/, std::size_t /*moved_from*/, const StoredTokens& /*tokens*/) {}
  virtual void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) = 0;
  /// What the index takes now beside the tokens, in all lanes of the unit together.
  virtual std::uint64_t index_bits() const { return 0; }
};

class Selection : public PromptObserver {
 public:
  void finish_prompt(const Prompt& /*prompt*/) override {}
  /// An earlier layer that chooses for this one: prompt, tokens and queries that the selector sees are those
  /// of that layer, at the same positions. Where any layer has one, the eviction must be `full` and numbers
  /// be stored as they come, so that both hold the same tokens.
  virtual std::optional<int> leader() const { return {}; }
  virtual std::unique_ptr<Selector> selector() const = 0;
};

}  // namespace kvsim::policy
