#pragma once
/// Drives one eviction policy over the caches of one unit, one cache per budget. It is the caller in the
/// contract of policies/api/eviction.hpp. It knows no trace and no model: a replay, an allocation that
/// measures the prompt first, a running model and a test all feed it their attention rows and tokens.
///
///   observe the prompt    eviction().observe(), observe_columns(), finish_prompt()
///   start(...)            once per budget: begins a cache with the prompt positions that the policy keeps
///   admit(cache, token)   a token arrives: the decoder evicts, the token joins, and may be attended
///   attended(cache, ...)  the decoder observes the attention that the token's queries pay to the slots
///
/// The caches of a policy that streams the prompt are started first and then admit the prompt's tokens too.
/// Every answer of the policy is checked: one that breaks the contract throws Error(bug), which names the
/// policy, layer and head.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/api/representation.hpp"
#include "policies/api/slots.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/error.hpp"
#include "sim/feed/index_store.hpp"
#include "sim/feed/selected_reads.hpp"

namespace kvsim::sim {

/// One cache whose numbers are not the recorded ones: what a codec has made of them.
class StoredCache {
 public:
  /// `observes`: whether the codec is shown the weights of each step. `rows`: what is kept of the prompt,
  /// exact.
  StoredCache(std::unique_ptr<policy::Codec> codec, bool observes, policy::CacheRows rows,
              const policy::Prompt& prompt)
      : codec_(std::move(codec)), observes_(observes), rows_(std::move(rows)) {
    codec_->begin(prompt, rows_);
  }

  const policy::CacheRows& rows() const { return rows_; }
  bool observes() const { return observes_; }
  policy::Ledger ledger() const { return codec_->ledger(rows_); }
  std::optional<std::uint64_t> sent_bits() const { return codec_->sent_bits(); }

  /// A token joins with exact numbers, as SlotStore::join() says. `leaving`: the one of the victims that the
  /// layer's window leaves behind.
  std::size_t join(std::span<const std::size_t> victims, const Token& token,
                   std::optional<std::size_t> leaving = {}) {
    if (!victims.empty()) codec_->leave(victims, rows_, leaving);
    const std::size_t slot = rows_.join(victims, token.position, token.keys, token.values);
    codec_->join(slot, rows_);
    return slot;
  }
  /// The queries of the token in this slot have attended the slots by these weights, [queries, slots].
  void settle(std::size_t own_slot, MatrixView weights) {
    if (observes_) codec_->observe(weights, rows_);
    codec_->settle(own_slot, rows_);
  }

  /// The other layer of a pair has processed the token in this slot, too.
  void pair(std::size_t own_slot, MatrixView keys, MatrixView values) {
    codec_->pair(own_slot, keys, values, rows_);
  }

  /// Room for the weights of a step: [n_heads, columns], a row per query of the unit. A column per slot and,
  /// where a query attends a token that has no slot, one more.
  void begin_step(std::size_t n_heads, std::size_t columns) {
    n_heads_ = n_heads;
    columns_ = columns;
    weights_.resize(n_heads * columns);
  }
  std::span<float> weights(std::size_t head) { return {weights_.data() + head * columns_, columns_}; }
  /// What a decoder observes: the weights, which add up to 1.
  SlotAttention slot_attention() {
    mass_.assign(n_heads_, 1.0);
    return {{weights_.data(), n_heads_, columns_, columns_}, mass_};
  }

 private:
  std::unique_ptr<policy::Codec> codec_;
  bool observes_;
  policy::CacheRows rows_;
  std::size_t n_heads_ = 0, columns_ = 0;
  std::vector<float> weights_;
  std::vector<double> mass_;
};

/// One cache of one unit: its budget, its resident tokens and the decoder that manages them.
template <SlotStore Store>
struct ManagedCache {
  std::size_t cell = 0;      ///< the cell that the cache belongs to, as the caller numbers cells
  std::size_t budget = 0;    ///< tokens
  std::size_t capacity = 0;  ///< most tokens that a query may attend while a decoder manages the cache
  std::size_t most = 0;      ///< positions that are ever resident at once
  std::unique_ptr<policy::Decoder> decoder;  ///< null: generated tokens are only appended
  Store residents;
  /// What a representation has made of the numbers, from the end of the prompt on; null: they are as
  /// recorded.
  std::unique_ptr<StoredCache> stored{};
  /// What a selection reads at each step, from the end of the prompt on; null: queries read everything.
  std::unique_ptr<SelectedReads> reads{};
  std::size_t left_behind = 0;  ///< tokens that the layer's window has left behind
  std::size_t own_slot = 0;     ///< slot of the token that joined last, or was asked again
  /// The positions that the queries of the present step attend: the resident ones, their own among them. At a
  /// step that repeats the last prompt token (ask_again()), its own position is added if the policy has
  /// evicted it.
  std::span<const policy::Position> attended{};
  policy::Position own = 0;                  ///< position of the present step's token
  bool own_is_resident = true;               ///< false where ask_again() added it to `attended`
  std::vector<policy::Position> with_own{};  ///< storage of `attended` where `own` is added

  bool attends(policy::Position position) const { return position == own || residents.contains(position); }
  /// The slot of the present step's token, if it has one.
  std::optional<std::size_t> slot_of_own() const {
    if (attended.size() > residents.slots().size()) return std::nullopt;
    if (own_slot < residents.slots().size() && residents.slots()[own_slot] == own) return own_slot;
    const auto at = std::find(residents.slots().begin(), residents.slots().end(), own);
    return static_cast<std::size_t>(at - residents.slots().begin());
  }
};

template <SlotStore Store>
class UnitDriver {
 public:
  using Cache = ManagedCache<Store>;

  /// `part` is the policy that `eviction` was made from; drivers of the same unit may have one in common. The
  /// sequence has `length` tokens, of which the first `prompt` are the prompt.
  UnitDriver(const policy::Part& part, std::shared_ptr<policy::Eviction> eviction,
             const policy::CacheUnit& unit, std::size_t prompt, std::size_t length)
      : part_(&part),
        eviction_(std::move(eviction)),
        needs_rows_(part.needs().decode_rows),
        layer_(unit.layer),
        first_kv_head_(unit.first_kv_head),
        span_(unit.span),
        chunk_(unit.chunk),
        prompt_(unit.reach(prompt)),
        first_(prompt - prompt_),
        length_(length),
        generated_(length - prompt) {}

  policy::Eviction& eviction() { return *eviction_; }
  const std::shared_ptr<policy::Eviction>& shared_eviction() const { return eviction_; }
  const policy::Eviction& eviction() const { return *eviction_; }
  /// Whether attended() needs the attention on the slots.
  bool needs_rows() const { return needs_rows_; }
  std::vector<Cache>& caches() { return caches_; }
  const std::vector<Cache>& caches() const { return caches_; }

  /// Begins a cache of `budget` tokens. Its store is made from the prompt positions that the policy keeps,
  /// the most positions that are ever resident at once, and `store_arguments`.
  template <class... Arguments>
  Cache& start(std::size_t cell, std::size_t budget, const Arguments&... store_arguments) {
    policy::Start start = eviction_->start(budget);
    const std::size_t capacity = budget + part_->overshoot();
    check_kept(start.keep, eviction_->streams_prompt() ? 0 : std::min(capacity, prompt_));
    for (policy::Position& row : start.keep) row += static_cast<policy::Position>(first_);
    const std::size_t reach = std::max(span_, chunk_), all = reach == 0 ? length_ : std::min(reach, length_);
    const std::size_t most = std::min(all, start.decoder ? capacity : start.keep.size() + generated_);
    caches_.push_back({cell, budget, capacity, most, std::move(start.decoder),
                       Store(std::span<const policy::Position>(start.keep), most, store_arguments...),
                       nullptr, nullptr});
    return caches_.back();
  }

  /// Admits a token: the layer's window leaves one behind, or a new chunk all, the decoder names the slots to
  /// evict, then the token joins. `step` is as in SlotStore. Returns the evicted slots, in the decoder's
  /// order, until the next call.
  std::span<const std::size_t> admit(Cache& cache, const Token& token, std::uint32_t step) {
    victims_.clear();
    find_leaving(cache, token.position);
    const auto leaving = leaving_.empty() ? std::nullopt : std::optional(leaving_.front());
    if (cache.decoder) {
      const std::span<const policy::Position> slots = cache.residents.slots();
      const bool full = !leaving && slots.size() >= cache.capacity;
      cache.decoder->evict(
          {token.position, slots, full, token.keys, token.queries, token.token_class, leaving}, victims_);
      check_victims(token.position, slots.size(), full);
    }
    if (leaving) add_leaving(cache);
    cache.own_slot = cache.residents.join(victims_, token, step);
    if (cache.stored && cache.stored->join(victims_, token, leaving) != cache.own_slot)
      bug("stored rows and slots do not agree", where());
    if (cache.reads) cache.reads->joined(victims_, cache.own_slot, cache.residents.slots().size());
    cache.own = token.position;
    cache.attended = cache.residents.slots();
    return victims_;
  }

  /// Repeats the step of the last prompt token: its queries attend once more, and nothing is evicted or
  /// joins. Where it has a slot, the decoder hears of its key and value, which a running model has computed
  /// anew.
  void ask_again(Cache& cache, const Token& token) {
    cache.own = token.position;
    cache.attended = cache.residents.slots();
    cache.own_is_resident = cache.residents.contains(token.position);
    if (cache.own_is_resident) {
      cache.own_slot = *cache.slot_of_own();
      if (cache.decoder) policy::renew(*cache.decoder, step_of(cache, token));
      return;
    }
    cache.with_own.assign(cache.attended.begin(), cache.attended.end());
    cache.with_own.push_back(token.position);
    cache.attended = cache.with_own;
  }

  /// Shows the decoder the step of the token that joined last. `to_slots` is the attention that its queries
  /// pay to the slots of the cache, if needs_rows(). Only for caches with a decoder.
  void attended(Cache& cache, const Token& token, const SlotAttention& to_slots) {
    policy::Step step = step_of(cache, token);
    step.attention = to_slots.attention;
    step.mass = to_slots.mass;
    cache.decoder->observe(step);
  }

 private:
  /// Finds the slots that are no longer seen from `position`: of the token that the window leaves behind, or
  /// all where a chunk begins.
  void find_leaving(const Cache& cache, policy::Position position);
  void add_leaving(Cache& cache);
  static policy::Step step_of(const Cache& cache, const Token& token) {
    policy::Step step;
    step.position = token.position;
    step.slots = cache.residents.slots();
    step.own_slot = cache.own_slot;
    step.keys = token.keys;
    step.values = token.values;
    step.queries = token.queries;
    step.surprise = token.surprise;
    return step;
  }
  void check_kept(const std::vector<policy::Position>& keep, std::size_t most) const;
  void check_victims(policy::Position position, std::size_t n_slots, bool full);
  std::string where() const;

  const policy::Part* part_;
  std::shared_ptr<policy::Eviction> eviction_;
  bool needs_rows_;
  int layer_, first_kv_head_;
  std::size_t span_, chunk_, prompt_,
      first_;  ///< window, chunk; rows of the prompt that it reaches, position of the first
  std::size_t length_, generated_;
  std::vector<Cache> caches_;
  std::vector<std::size_t> victims_, distinct_, leaving_, closing_;  // scratch
};

extern template class UnitDriver<IndexStore>;

}  // namespace kvsim::sim
