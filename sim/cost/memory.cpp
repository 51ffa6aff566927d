#include "sim/cost/memory.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/cost/checked.hpp"
#include "sim/cost/offload.hpp"
#include "sim/cost/storage.hpp"

namespace kvsim::cost {
namespace {

constexpr const char* kCache = "the cache";
constexpr const char* kActivations = "the activations";
constexpr const char* kWeights = "the weights";

/// Bytes of some layers' cache.
struct CacheBytes {
  std::uint64_t keys_values = 0, padding = 0, metadata = 0, page_tables = 0;
  PerTier<std::uint64_t> away{};  ///< keys, values and padding that are not on the device

  void add(std::uint64_t times, const CacheBytes& other) {
    keys_values = checked_sum(kCache, keys_values, checked_product(kCache, times, other.keys_values));
    padding = checked_sum(kCache, padding, checked_product(kCache, times, other.padding));
    metadata = checked_sum(kCache, metadata, checked_product(kCache, times, other.metadata));
    page_tables = checked_sum(kCache, page_tables, checked_product(kCache, times, other.page_tables));
    for (const Tier tier : kTiers)
      away[tier] = checked_sum(kCache, away[tier], checked_product(kCache, times, other.away[tier]));
  }
  /// Subtracts what was added before.
  void remove(std::uint64_t times, const CacheBytes& other) {
    keys_values -= times * other.keys_values;
    padding -= times * other.padding;
    metadata -= times * other.metadata;
    page_tables -= times * other.page_tables;
    for (const Tier tier : kTiers) away[tier] -= times * other.away[tier];
  }
  std::uint64_t total() const { return checked_sum(kCache, keys_values, padding, metadata, page_tables); }
};

/// Neighbouring lanes on one device.
struct LaneRange {
  std::uint64_t first = 0, count = 0;

  std::uint64_t overlap(std::uint64_t begin, std::uint64_t end) const {
    const std::uint64_t low = std::max(begin, first), high = std::min(end, first + count);
    return high > low ? high - low : 0;
  }
};

/// The moment at which a layer is measured: after `step` generated tokens, or in the prefill, when all its
/// lanes hold `whole` tokens of the prompt, those of them that are within its window, and `fresh` new ones.
struct Moment {
  std::uint64_t step = 0;
  std::uint64_t whole = kNoLimit;  ///< kNoLimit: the tokens that the policy keeps
  std::uint64_t fresh = 0;

  /// Returns the moment of these layers, whose lanes hold `whole` tokens.
  Moment of(const EqualLayers& group) const {
    return whole == kNoLimit ? *this : Moment{.step = step, .whole = group.within_window(whole) + fresh};
  }
  LaneTokens tokens(const EqualLanes& lane) const {
    return whole == kNoLimit ? lane.tokens(step) : LaneTokens{.kept = whole};
  }
  /// Returns the bits that a replay counted for each of the lanes at this moment.
  std::optional<double> counted(const EqualLanes& lane, std::uint64_t generate) const {
    if (!lane.counted || whole != kNoLimit) return std::nullopt;
    if (step == generate) return lane.counted->held;
    return step == 0 ? std::optional(lane.counted->kept) : std::nullopt;
  }
  /// Returns the tokens present so far, evicted ones included.
  std::uint64_t seen(std::uint64_t prompt) const { return whole == kNoLimit ? prompt + step : whole; }
};

/// The cache of one sequence on one device.
class DeviceCache {
 public:
  DeviceCache(const Model& model, const Serving& serving, const Holding& holding, const policy::Cost& cost,
              LaneRange range)
      : model_(model), serving_(serving), holding_(holding), cost_(cost), range_(range) {}

  CacheBytes layer(const EqualLayers& group, const Moment& of_all) const {
    CacheBytes bytes;
    const Moment moment = of_all.of(group);
    const std::uint64_t longest = longest_slots(group, moment);
    for_lanes(group, [&](const EqualLanes& lane, std::uint64_t lanes) {
      bytes.add(1, equal_lanes(lane, lanes, moment, lane_slots(lane, moment, longest)));
    });
    const std::uint64_t layer_slots = paged(longest);
    bytes.metadata =
        checked_sum(kCache, bytes.metadata, checked_product(kCache, layer_slots, cost_.metadata.layer_slot),
                    cost_.metadata.layer);
    if (layout().selection) bytes.metadata = checked_sum(kCache, bytes.metadata, index_bytes(group, moment));
    if (pages_shared())
      bytes.page_tables = checked_product(kCache, layer_slots / layout().page, layout().table_entry);
    return bytes;
  }

  /// The index of a selection, in the mean of a group's layers.
  std::uint64_t index_bytes(const EqualLayers& group, const Moment& moment) const {
    std::uint64_t tokens = 0, lanes = 0, layer = 0;
    for (const EqualLanes& equal : group.lanes) {
      tokens = checked_sum(kCache, tokens, checked_product(kCache, equal.lanes, moment.tokens(equal).all()));
      lanes += equal.lanes;
    }
    for (const EqualLayers* before = holding_.layers.data(); before != &group; ++before)
      layer += before->layers;
    double sum = 0;
    for (std::uint64_t i = 0; i < group.layers; ++i)
      sum += layer_reads(layout().selection, model_, layer + i,
                         static_cast<double>(tokens) / static_cast<double>(lanes))
                 .index_bytes;
    const double share = static_cast<double>(range_.count) / static_cast<double>(lanes);
    return static_cast<std::uint64_t>(std::ceil(sum * share / static_cast<double>(group.layers)));
  }

  CacheBytes all_layers(const Moment& moment) const {
    CacheBytes bytes;
    for (const EqualLayers& group : holding_.layers) bytes.add(group.layers, resting(group, moment));
    return bytes;
  }

  /// Returns all layers, and room for `layers` of them that are being computed or copied.
  CacheBytes with_buffers(CacheBytes bytes, const Moment& moment, std::uint64_t layers) const {
    std::uint64_t largest = 0;
    if (serving_.offload.cache_away() > 0)
      for (const EqualLayers& group : holding_.layers) {
        const CacheBytes layer = resting(group, moment);
        largest = std::max(largest, checked_sum(kCache, layer.away.host, layer.away.ssd));
      }
    const std::uint64_t room = checked_product(kCache, std::min(layers, model_.layers), largest);
    bytes.keys_values = checked_sum(kCache, bytes.keys_values, room);
    return bytes;
  }

  /// One layer is at `now`, those before it at `done`, those behind it at `waiting`: returns the largest of
  /// all such states. Within a group, bytes change by the same amount from layer to layer, so checking its
  /// ends suffices.
  CacheBytes worst_layer(const Moment& done, const Moment& now, const Moment& waiting) const {
    CacheBytes worst, before, behind = all_layers(waiting);
    for (const EqualLayers& group : holding_.layers) {
      const CacheBytes left = resting(group, done), working = layer(group, now),
                       ahead = resting(group, waiting);
      behind.remove(group.layers, ahead);
      for (const std::uint64_t index : {std::uint64_t{0}, group.layers - 1}) {
        CacheBytes here = before;
        here.add(index, left);
        here.add(1, working);
        here.add(group.layers - 1 - index, ahead);
        here.add(1, behind);
        if (here.total() > worst.total()) worst = here;
      }
      before.add(group.layers, left);
    }
    // The layer before is still being copied out, and the next one is being copied in.
    return with_buffers(with_buffers(worst, done, 1), waiting, 1);
  }

 private:
  /// Returns a layer's bytes without the shares of the tiers behind the device, with the buffer for these.
  CacheBytes resting(const EqualLayers& group, const Moment& moment) const {
    CacheBytes bytes = layer(group, moment);
    const Offload& offload = serving_.offload;
    for (std::uint64_t CacheBytes::*part : {&CacheBytes::keys_values, &CacheBytes::padding}) {
      const std::uint64_t all = bytes.*part;
      for (const Tier tier : kTiers) {
        const std::uint64_t out = std::min(bytes.*part, share_of(all, offload.cache[tier]));
        bytes.*part -= out;
        bytes.away[tier] += out;
      }
    }
    if (offload.buffer > 0 && offload.cache_away() > 0)
      for_lanes(group, [&](const EqualLanes& lane, std::uint64_t lanes) {
        const std::uint64_t away = share_of(moment.of(group).tokens(lane).all(), offload.cache_away());
        bytes.keys_values = checked_sum(kCache, bytes.keys_values,
                                        stored_bytes(layout().storage, model_, lanes,
                                                     LaneTokens{.kept = std::min(offload.buffer, away)}));
      });
    return bytes;
  }

  const Layout& layout() const { return serving_.layout; }

  template <class Visit>
  void for_lanes(const EqualLayers& group, const Visit& visit) const {
    std::uint64_t begin = 0;
    for (const EqualLanes& lane : group.lanes) {
      const std::uint64_t here = range_.overlap(begin, begin + lane.lanes);
      if (here != 0) visit(lane, here);
      begin += lane.lanes;
    }
  }

  /// A page shared by a layer's lanes has as many slots for each of them.
  bool pages_shared() const { return layout().page != 0 && !layout().head_pages; }

  /// Returns the slots of a lane whose evicted tokens leave holes, when the share `gone` of all pages' tokens
  /// is evicted.
  std::uint64_t slots_with_holes(double gone, const Moment& moment) const {
    const std::uint64_t page = layout().page, seen = moment.seen(serving_.prompt);
    if (page == 0) return seen;
    const double share = 1 - freed_page_share(gone, page);
    // The margin ignores what rounding adds to a whole number.
    const double pages = std::ceil(static_cast<double>(ceil_divided(seen, page)) * share - 1e-6);
    return checked_product(kCache, static_cast<std::uint64_t>(pages), page);
  }

  double gone(const EqualLanes& lane, const Moment& moment) const {
    const std::uint64_t seen = moment.seen(serving_.prompt);
    return seen == 0 ? 0 : 1 - static_cast<double>(moment.tokens(lane).all()) / static_cast<double>(seen);
  }

  /// Returns the slots that a lane needs on its own.
  std::uint64_t own_slots(const EqualLanes& lane, const Moment& moment) const {
    std::uint64_t slots = moment.tokens(lane).all();
    if (layout().preallocated) slots = std::max(slots, lane.at(serving_.generate));
    if (layout().vacated == Vacated::left && !pages_shared())
      slots = std::max(slots, slots_with_holes(gone(lane, moment), moment));
    return slots;
  }

  /// Returns the slots of each of a layer's lanes when all have as many as the longest.
  std::uint64_t longest_slots(const EqualLayers& group, const Moment& moment) const {
    std::uint64_t longest = 0;
    double all_gone = 1, least_gone = 1;
    for_lanes(group, [&](const EqualLanes& lane, std::uint64_t lanes) {
      longest = std::max(longest, own_slots(lane, moment));
      if (layout().vacated == Vacated::reused) return;
      all_gone *= std::pow(gone(lane, moment), static_cast<double>(lanes));
      least_gone = std::min(least_gone, gone(lane, moment));
    });
    if (layout().vacated == Vacated::reused || !pages_shared()) return longest;
    return std::max(longest, slots_with_holes(cost_.lanes_alike ? least_gone : all_gone, moment));
  }

  std::uint64_t paged(std::uint64_t slots) const {
    const std::uint64_t page = layout().page;
    return page == 0 ? slots : checked_product(kCache, ceil_divided(slots, page), page);
  }

  std::uint64_t lane_slots(const EqualLanes& lane, const Moment& moment, std::uint64_t longest) const {
    return paged(layout().padded || pages_shared() ? longest : own_slots(lane, moment));
  }

  /// The bytes of `lanes` of a group.
  CacheBytes equal_lanes(const EqualLanes& lane, std::uint64_t lanes, const Moment& moment,
                         std::uint64_t slots) const {
    const Storage& storage = layout().storage;
    const LaneTokens tokens = moment.tokens(lane);
    CacheBytes bytes;
    // The parts of a unit's lanes add up to a whole number, but for their rounding.
    if (const std::optional<double> bits = moment.counted(lane, serving_.generate))
      bytes.keys_values =
          ceil_divided(static_cast<std::uint64_t>(std::llround(static_cast<double>(lanes) * *bits)), 8);
    else
      bytes.keys_values = stored_bytes(storage, model_, lanes, tokens);
    bytes.padding = empty_bytes(storage, model_, lanes, tokens, slots - tokens.all());
    bytes.away.host = ceil_divided(stored_ledger(storage, model_, lanes, tokens).host, 8);
    const std::uint64_t metadata =
        checked_sum(kCache, cost_.metadata.lane, checked_product(kCache, slots, cost_.metadata.lane_slot),
                    checked_product(kCache, slots, layout().mask_bytes));
    bytes.metadata = checked_product(kCache, lanes, metadata);
    if (layout().head_pages && layout().page != 0)
      bytes.page_tables = checked_product(kCache, lanes, slots / layout().page, layout().table_entry);
    return bytes;
  }

  const Model& model_;
  const Serving& serving_;
  const Holding& holding_;
  const policy::Cost& cost_;
  const LaneRange range_;
};

bool lanes_differ(const Holding& holding) {
  return std::any_of(holding.layers.begin(), holding.layers.end(),
                     [](const EqualLayers& group) { return group.lanes.size() > 1; });
}

/// Returns the largest `cache_of(DeviceCache)` of all devices.
template <class CacheOf>
CacheBytes busiest_device(const Model& model, const Serving& serving, const Holding& holding,
                          const policy::Cost& cost, const CacheOf& cache_of) {
  const std::uint64_t stored = stored_heads(model, serving.layout);
  const std::uint64_t local = local_kv_heads(stored, serving.tensor_parallel);
  const std::uint64_t end = lanes_differ(holding) ? stored : local;
  CacheBytes worst;
  for (std::uint64_t first = 0; first < end; first += local) {
    const CacheBytes here = cache_of(DeviceCache(model, serving, holding, cost, {first, local}));
    if (first == 0 || here.total() > worst.total()) worst = here;
  }
  return worst;
}

/// One forward pass of every sequence.
struct Pass {
  std::uint64_t tokens = 0;       ///< new, per sequence
  std::uint64_t attended = 0;     ///< per sequence, those included
  std::uint64_t logits_rows = 1;  ///< per sequence
  bool scores_written = false;
};

/// Returns the largest live set of the attention, the MLP and the head: the residual stream, its normalised
/// copy, and the operation's own inputs and outputs. `share` is the part of the model that the device
/// computes.
std::uint64_t activation_bytes(const Model& share, const Serving& serving, const Pass& pass) {
  const auto product = [](auto... factors) { return checked_product(kActivations, factors...); };
  const Runtime& runtime = serving.runtime;
  const std::uint64_t element = runtime.activation_bytes;
  const std::uint64_t rows = product(serving.batch, pass.tokens);
  const std::uint64_t stream = product(2, share.hidden);
  // With a latent every head has a key and a value of its own while a prompt is computed.
  const std::uint64_t keys = share.latent.rank == 0 ? share.kv_heads : share.query_heads;
  const std::uint64_t heads = checked_sum(
      kActivations, product(share.gated_attention ? 2 : 1, share.query_heads, share.prompt_key_dim()),
      product(share.query_heads, share.prompt_value_dim()), product(keys, share.prompt_key_dim()),
      product(keys, share.prompt_value_dim()));
  const std::uint64_t scores =
      pass.scores_written ? product(rows, share.query_heads, pass.attended, runtime.score_bytes) : 0;
  const std::uint64_t attention =
      checked_sum(kActivations, product(rows, element, checked_sum(kActivations, stream, heads)), scores);
  // Of experts each token has those that it is routed to.
  std::uint64_t inner = 0;
  for (const model::LayerKind& kind : share.layer_kinds()) {
    if (kind.mlp == model::LayerKind::Mlp::dense) inner = std::max(inner, share.ffn);
    if (kind.mlp == model::LayerKind::Mlp::experts)
      inner = std::max(inner, product(share.experts.used, share.experts.width) + share.experts.shared_width);
  }
  std::uint64_t remembering = 0;
  for (const auto& [inputs, outputs] : share.recurrence.matrices)
    remembering = checked_sum(kActivations, remembering, outputs);
  const std::uint64_t mlp =
      product(rows, element, checked_sum(kActivations, stream, product(share.gated_mlp ? 3 : 2, inner)));
  // Logits, and their copy in 32 bits for sampling.
  const std::uint64_t head = product(serving.batch, pass.logits_rows, share.vocab, element + 4);
  return std::max(
      {attention, mlp, head, product(rows, element, checked_sum(kActivations, stream, remembering))});
}

Memory with_cache(Memory memory, const CacheBytes& cache, std::uint64_t batch) {
  CacheBytes all;
  all.add(batch, cache);
  memory.keys_values = all.keys_values;
  memory.padding = all.padding;
  memory.metadata = all.metadata;
  memory.page_tables = all.page_tables;
  for (const Tier tier : kTiers)
    memory.away[tier] = checked_sum(tier_name(tier), memory.away[tier], all.away[tier]);
  return memory;
}

std::uint64_t bytes_of(std::uint64_t parameters, double bits) {
  const double bytes = std::ceil(static_cast<double>(parameters) * bits / 8);
  if (!(bytes >= 0 && bytes < 0x1p63)) does_not_fit(kWeights);
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t matrix_bytes(const Model& share, const Runtime& runtime) {
  const double bits = runtime.weight_bits.value_or(share.weight_bits);
  const double expert_bits = runtime.weight_bits.value_or(share.expert_bits.value_or(bits));
  return checked_sum(kWeights, bytes_of(share.shared_matrix_parameters(), bits),
                     bytes_of(share.expert_parameters(), expert_bits));
}

std::uint64_t share_weight_bytes(const Model& share, const Runtime& runtime) {
  return checked_sum(
      kWeights, matrix_bytes(share, runtime),
      bytes_of(share.embedding_parameters(), runtime.embedding_bits.value_or(share.embedding_bits)),
      checked_product(kWeights, share.small_parameters(), runtime.activation_bytes));
}

/// Returns the tables that all sequences share, of the lanes of a device.
std::uint64_t shared_tables(const Model& model, const Serving& serving) {
  const std::uint64_t lanes = local_kv_heads(model.kv_heads, serving.tensor_parallel);
  const policy::Ledger layer =
      stored_ledger(serving.layout.storage, model, lanes, LaneTokens{.kept = serving.prompt});
  return checked_product(kCache, model.cached_layers(), ceil_divided(layer.shared, 8));
}

std::uint64_t sequence_states(const Model& model, std::uint64_t tensor_parallel) {
  if (model.remembering_layers() == 0) return 0;
  return checked_product(kCache, model.remembering_layers(),
                         device_share(model, tensor_parallel).state_bytes());
}

/// Returns the bytes that do not depend on the moment.
Memory fixed_part(const Model& model, const Machine& machine, const Serving& serving) {
  Memory memory;
  memory.weights = weight_bytes(model, serving.runtime, serving.tensor_parallel);
  memory.reserved = machine.reserved;
  memory.shared_tables = shared_tables(model, serving);
  memory.states = checked_product(kCache, serving.batch, sequence_states(model, serving.tensor_parallel));
  if (serving.offload.weights_away() > 0) {
    const std::uint64_t matrices =
        matrix_bytes(device_share(model, serving.tensor_parallel), serving.runtime);
    std::uint64_t away = 0;
    for (const Tier tier : kTiers) {
      memory.away[tier] = std::min(matrices - away, share_of(matrices, serving.offload.weights[tier]));
      away += memory.away[tier];
    }
    const std::uint64_t room = std::min<std::uint64_t>(2, model.layers) * ceil_divided(away, model.layers);
    memory.weights -= away - std::min(room, away);
  }
  return memory;
}

/// A policy that reads every row of the prompt's attention needs the score matrix as eager attention does,
/// unless the rows are recomputed in a kernel that only adds them up.
bool scores_written(const Runtime& runtime, const policy::Cost& cost) {
  return runtime.attention == Attention::eager ||
         (cost.prompt_rows == policy::kAllRows && runtime.rows == RowSource::written);
}

}  // namespace

std::uint64_t Memory::cache() const {
  return checked_sum(kCache, keys_values, padding, metadata, page_tables, shared_tables, states);
}

std::uint64_t Memory::total() const {
  return checked_sum("all memory", weights, cache(), activations, scratch, reserved);
}

std::uint64_t weight_bytes(const Model& model, const Runtime& runtime, std::uint64_t tensor_parallel) {
  return tensor_parallel == 1 ? share_weight_bytes(model, runtime)
                              : share_weight_bytes(device_share(model, tensor_parallel), runtime);
}

std::uint64_t full_cache_bytes(const Model& model, const Layout& layout, std::uint64_t tokens,
                               std::uint64_t batch) {
  return checked_product(
      kCache, batch, model.cached_layers(),
      stored_bytes(layout.storage, model, stored_heads(model, layout), LaneTokens{.kept = tokens}));
}

SequenceBytes sequence_bytes(const Model& model, const Serving& serving, const LaneTokens& tokens) {
  const std::uint64_t stored = stored_heads(model, serving.layout);
  const Holding holding = full_holding(model, stored, tokens.kept);
  Serving one = serving;
  one.prompt = tokens.kept;
  one.generate = tokens.appended;
  const policy::Cost none;
  const DeviceCache device(model, one, holding, none, {0, local_kv_heads(stored, serving.tensor_parallel)});
  const CacheBytes cache = device.all_layers({.step = tokens.appended});
  return {checked_sum(kCache, cache.keys_values, sequence_states(model, serving.tensor_parallel)),
          cache.padding};
}

Memory memory_at(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                 const policy::Cost& cost, std::uint64_t step) {
  check_serving(model, serving);
  check_holding(model, stored_heads(model, serving.layout), holding);
  const Moment moment{.step = step};
  const CacheBytes cache = busiest_device(model, serving, holding, cost, [&](const DeviceCache& device) {
    return device.with_buffers(device.all_layers(moment), moment, 2);
  });
  Memory memory = with_cache(fixed_part(model, machine, serving), cache, serving.batch);
  std::uint64_t longest = 0;
  for (const EqualLayers& group : holding.layers) longest = std::max(longest, group.longest(step));
  const Pass pass{.tokens = 1,
                  .attended = longest,
                  .scores_written = serving.runtime.attention == Attention::eager || cost.decode_rows};
  memory.activations = activation_bytes(device_share(model, serving.tensor_parallel), serving, pass);
  return memory;
}

Memory prefill_peak(const Model& model, const Machine& machine, const Serving& serving,
                    const Holding& holding, const policy::Cost& cost) {
  check_serving(model, serving);
  check_holding(model, stored_heads(model, serving.layout), holding);
  const Model share = device_share(model, serving.tensor_parallel);
  const std::uint64_t chunk = serving.chunk == 0 ? serving.prompt : serving.chunk;
  const std::uint64_t earlier = (serving.prompt - 1) / chunk * chunk;
  const Runtime& runtime = serving.runtime;
  const bool written = scores_written(runtime, cost);
  const std::uint64_t rows = runtime.logits_rows == 0 ? 1 : runtime.logits_rows;
  const auto at = [&](const Moment& done, const Moment& now, const Moment& waiting, const Pass& pass) {
    const CacheBytes cache = busiest_device(model, serving, holding, cost, [&](const DeviceCache& device) {
      return cost.streams ? device.with_buffers(device.all_layers(done), done, 2)
                          : device.worst_layer(done, now, waiting);
    });
    Memory memory = with_cache(fixed_part(model, machine, serving), cache, serving.batch);
    memory.activations = activation_bytes(share, serving, pass);
    return memory;
  };
  const std::uint64_t last = serving.prompt - earlier;
  const auto rested = [&](std::uint64_t tokens) { return Moment{.whole = tokens}; };
  const auto in_work = [&](std::uint64_t past, std::uint64_t tokens) {
    return Moment{.whole = past, .fresh = tokens};
  };
  const Moment before = rested(earlier), all = in_work(earlier, last);
  Memory peak = at(Moment{}, all, before,
                   {.tokens = last,
                    .attended = serving.prompt,
                    .logits_rows = std::min(rows, last),
                    .scores_written = written});
  peak.scratch = checked_product("the scratch of a policy", serving.batch,
                                 ceil_divided(cost.scratch_bytes, serving.tensor_parallel));
  if (cost.repeated_at_once > 0) {
    const std::uint64_t repeated = std::min<std::uint64_t>(cost.repeated_at_once, serving.prompt);
    const Memory twice =
        at(rested(serving.prompt + repeated), in_work(serving.prompt, repeated), rested(serving.prompt),
           {.tokens = repeated,
            .attended = serving.prompt + repeated,
            .logits_rows = 1,
            .scores_written = written});
    if (twice.total() > peak.total()) peak = twice;
  }
  if (earlier == 0) return peak;
  // The chunk before the last may be longer than the last.
  const std::uint64_t past = earlier - chunk;
  const Memory previous = at(cost.streams ? Moment{} : before, in_work(past, chunk), rested(past),
                             {.tokens = chunk,
                              .attended = earlier,
                              .logits_rows = std::min(rows, chunk),
                              .scores_written = written});
  return previous.total() > peak.total() ? previous : peak;
}

}  // namespace kvsim::cost
