#include "sim/cost/device_pass.hpp"

#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/offload.hpp"

namespace kvsim::cost {
namespace {

/// Exponential, running maximum, sum, scale and conversion of a score.
constexpr double kSoftmaxOps = 5;
/// Score matrices of unfused attention: written, read by the softmax, written, read by the product with
/// values.
constexpr double kScorePasses = 4;

/// Share of the measured start of attention that remains when the cache is small: floors of 9 to 14 us were
/// timed beside 22 us (LLMServingSim, RTX 4090).
constexpr double kLeastStart = 0.4;
/// Operations on a number of a recurrent state for each token: two for the decay and what is added, two for
/// the product with a query, two for that with a key, which the delta rule has.
constexpr double kStateOps = 6;

/// Residual additions of a layer: one behind what mixes tokens, one behind the feed-forward.
double additions(const model::LayerKind& kind) {
  return (kind.attends || kind.remembers ? 1 : 0) + (kind.mlp == model::LayerKind::Mlp::none ? 0 : 1);
}

/// Returns the sum over the first n rows of the keys that each attends to within its chunk.
double chunk_pairs(std::uint64_t n, std::uint64_t chunk) {
  const double whole = real(n / chunk), rest = real(n % chunk), size = real(chunk);
  return whole * size * (size + 1) / 2 + rest * (rest + 1) / 2;
}

/// Returns the sum over `tokens` rows after `past` cached ones of the keys that each attends to, itself
/// included.
double attended_pairs(std::uint64_t tokens, std::uint64_t past, std::uint64_t window, bool chunked) {
  if (chunked && window > 0) return chunk_pairs(past + tokens, window) - chunk_pairs(past, window);
  const double rows = real(tokens), cached = real(past);
  const double causal = rows * cached + rows * (rows + 1) / 2;
  if (window == 0 || past + tokens <= window) return causal;
  // Rows that reach back further than the window.
  const double beyond = real(std::min(tokens, past + tokens - window));
  const double before = rows - beyond;
  return before * cached + before * (before + 1) / 2 + beyond * real(window);
}

/// Returns how many of `past` cached tokens the next one attends to.
std::uint64_t cached_reach(std::uint64_t past, std::uint64_t window, bool chunked) {
  if (window == 0) return past;
  return chunked ? past % window : std::min(past, window);
}

/// Returns the factor on that sum when rows are computed in whole tiles, each against all keys up to its last
/// row.
double tile_padding(std::uint64_t tokens, std::uint64_t past, std::uint64_t tile) {
  const double tiles = real(ceil_divided(tokens, tile)), rows = real(tile);
  const double computed = rows * (tiles * real(past) + rows * tiles * (tiles + 1) / 2);
  return computed / attended_pairs(tokens, past, 0, false);
}

/// The lanes of a layer that have no room for the token of a step, so that another leaves, and their tokens.
struct FullLanes {
  double lanes = 0, tokens = 0;

  FullLanes(const EqualLayers& group, std::uint64_t step) {
    for (const EqualLanes& of : group.lanes) {
      if (of.limit == kNoLimit || of.after_prompt + step <= of.limit) continue;
      lanes += real(of.lanes);
      tokens += real(of.lanes) * real(of.at(step));
    }
  }
};

bool idle(const policy::Work& work) {
  return work.flops == 0 && work.ops == 0 && work.bytes == 0 && work.launches == 0;
}

}  // namespace

DevicePass::DevicePass(const Model& model, const Machine& machine, const Serving& serving)
    : model_(model), machine_(machine), serving_(serving) {
  check_serving(model, serving);
  const std::uint64_t degree = serving.tensor_parallel, stored = stored_heads(model, serving.layout);
  if (degree > 1 && machine.device.bandwidth <= 0)
    usage_error("machine " + machine.name + " has no link to other devices", "tensor parallel degree",
                "give its file a \"device_link\", or use one device");
  if (serving.offload.uses(Tier::host) && machine.host.bandwidth <= 0)
    usage_error("machine " + machine.name + " has no link to host memory", "offload",
                "give its file a \"host_link\", or keep everything on the device");
  if (serving.offload.uses(Tier::ssd) && machine.ssd.bandwidth <= 0)
    usage_error("machine " + machine.name + " has no link to an SSD", "offload",
                "give its file an \"ssd_link\", or keep everything on the device and in host memory");
  batch_ = real(serving.batch);
  activation_ = real(serving.runtime.activation_bytes);
  // Weights that are given other bits are taken to be multiplied by inputs of 16.
  product_rate_ = machine.product_rate(serving.runtime.weight_bits ? 16 : model.product_bits);
  matrix_bytes_ = serving.runtime.weight_bits.value_or(model.weight_bits) / 8;
  expert_bytes_ = serving.runtime.weight_bits.value_or(model.expert_bits.value_or(model.weight_bits)) / 8;
  head_bytes_ = serving.runtime.embedding_bits.value_or(model.embedding_bits) / 8;
  share_ = 1 / real(degree);
  local_ = device_share(model, degree);
  kinds_ = model.layer_kinds();
  cached_layers_ = real(model.cached_layers());
  crossing_layers_ = real(model.crossing_layers());
  readers_ = std::max(1.0, crossing_layers_);
  windows_ = model.window_sums();
  query_heads_ = real(local_.query_heads);
  kv_heads_ = real(local_.kv_heads);
  vocab_ = real(local_.vocab);
  block_parameters_ = real(local_.block_matrix_parameters());
  stored_heads_ = real(local_kv_heads(stored, degree));
  stored_share_ = stored_heads_ / real(stored);
}

void DevicePass::charge(OpTime& op, const Demand& demand, double times) const {
  const double compute =
      demand.flops / (demand.compute_ceiling * (demand.rate > 0 ? demand.rate : machine_.matrix_rate)) +
      demand.ops / machine_.vector_rate;
  const double memory = demand.bytes / (demand.memory_ceiling * machine_.bandwidth);
  const double busy = roofline(compute, memory, machine_.ceilings.norm);
  op.flops += times * demand.flops;
  op.bytes += times * demand.bytes;
  op.compute += times * compute;
  op.memory += times * memory;
  op.overhead += times * (demand.overhead + demand.hidden_overhead);
  const double shown = demand.hidden_overhead == 0 ? busy : std::hypot(busy, demand.hidden_overhead);
  op.seconds += times * (shown + demand.overhead);
}

Demand DevicePass::product(double tokens, double in, double out, double weight_bytes) const {
  const Ceilings& ceilings = machine_.ceilings;
  return {.flops = 2 * tokens * in * out,
          .bytes = weight_bytes * in * out + activation_ * tokens * (in + out),
          .compute_ceiling = ceilings.compute,
          .memory_ceiling = ceilings.memory,
          .overhead = ceilings.launch};
}

void DevicePass::charge_block(OpTime& op, Demand product) const {
  product.rate = product_rate_;
  charge(op, product, 1);
}

void DevicePass::multiply(OpTime& op, const Products& products, double tokens) const {
  for (const auto& [inputs, outputs] : products)
    charge_block(op, product(tokens, real(inputs), real(outputs), matrix_bytes_));
}

void DevicePass::experts(OpTime& op, double tokens) const {
  const model::Experts& experts = local_.experts;
  const double count = experts.count, used = experts.used, hidden = real(model_.hidden);
  charge(op, product(tokens, hidden, count, activation_), 1);
  const double read = count * (1 - std::pow(1 - used / count, tokens));
  // All experts' products of one side are one kernel, which reads the experts that some token goes to.
  for (const auto& [inputs, outputs] : local_.mlp_products(experts.width))
    charge_block(op, product(used * tokens, real(inputs), real(outputs), read * expert_bytes_));
  if (experts.shared_width > 0) multiply(op, local_.mlp_products(experts.shared_width), tokens);
}

void DevicePass::mlp(OpTime& op, model::LayerKind::Mlp mlp, std::uint64_t tokens) const {
  const double all = batch_ * real(tokens);
  if (mlp == model::LayerKind::Mlp::dense) multiply(op, local_.mlp_products(local_.ffn), all);
  if (mlp == model::LayerKind::Mlp::experts) experts(op, all);
}

void DevicePass::one_mlp(OpTime& op, std::uint64_t tokens) const {
  mlp(op, model_.kinds.empty() ? model::LayerKind::Mlp::dense : model_.kinds.back().mlp, tokens);
}

/// Norms move 2h each, residual additions 3h each, the activation its inputs and its output; rotation (and a
/// norm of queries and keys) moves both twice, a recurrence what it is given.
double DevicePass::elements(const model::LayerKind& kind) const {
  const double hidden = real(model_.hidden), parts = model_.gated_mlp ? 3 : 2;
  double elements = 2 * hidden * real(model_.norms_per_block()) + 3 * hidden * additions(kind);
  if (kind.mlp == model::LayerKind::Mlp::dense) elements += parts * real(local_.ffn);
  if (kind.mlp == model::LayerKind::Mlp::experts)
    elements +=
        parts * (real(local_.experts.used) * real(local_.experts.width) + real(local_.experts.shared_width));
  if (kind.attends) {
    const double keys = kind.crosses ? 0 : kv_heads_;
    const double rotated = model_.latent.rank == 0 ? (query_heads_ + keys) * real(model_.head_dim)
                                                   : (query_heads_ + 1) * real(model_.latent.rotated);
    if (model_.learned_positions == 0) elements += 2 * rotated;
    if (model_.qk_norm) elements += 2 * rotated;
  }
  if (kind.remembers) elements += 2 * real(local_.recurrence.matrices.front().outputs);
  return elements;
}

void DevicePass::shared_cache(PassTime& pass, double tokens, double appended) const {
  multiply(pass[OpClass::linear], local_.shared_products(), tokens);
  // A norm, and the rotation of the keys.
  const double moved = 2 * real(model_.hidden) + 2 * kv_heads_ * real(model_.head_dim);
  charge(pass[OpClass::elementwise],
         {.bytes = activation_ * tokens * moved + batch_ * stored_heads_ * appended,
          .memory_ceiling = machine_.ceilings.elementwise_memory,
          .hidden_overhead = machine_.ceilings.elementwise_launch},
         1);
}

void DevicePass::dense(PassTime& pass, std::uint64_t tokens, std::uint64_t sequences,
                       std::optional<std::uint64_t> crossing) const {
  const double hidden = real(model_.hidden);
  const Ceilings& ceilings = machine_.ceilings;
  // What the new tokens add to a lane: a generated one joins, those of a prompt are stored together.
  const LaneTokens joined = tokens == 1 ? LaneTokens{.appended = 1} : LaneTokens{.kept = tokens};
  const double appended = lane_bytes(joined) - lane_bytes({});
  if (crossing_layers_ > 0) shared_cache(pass, batch_ * real(tokens), appended);
  for (const model::LayerKind& kind : kinds_) {
    const std::uint64_t rows = kind.crosses ? crossing.value_or(tokens) : tokens;
    if (rows == 0) continue;
    const double layers = real(kind.layers), all = batch_ * real(rows);
    const bool stores = kind.attends && !kind.crosses;
    OpTime layer;
    if (kind.attends)
      multiply(layer, kind.crosses ? local_.crossing_products() : local_.attention_products(), all);
    if (kind.remembers) multiply(layer, local_.recurrence.matrices, all);
    mlp(layer, kind.mlp, rows);
    add(pass[OpClass::linear], layer, layers);

    Demand small{
        .bytes = activation_ * all * elements(kind) + (stores ? batch_ * stored_heads_ * appended : 0),
        .memory_ceiling = ceilings.elementwise_memory,
        .hidden_overhead = ceilings.elementwise_launch};
    if (kind.remembers) {
      // The state is read and written once, and each of its numbers decays, gets its part of an outer product
      // and is multiplied by a query for every token.
      small.bytes += 2 * batch_ * real(sequences) * real(local_.state_bytes());
      small.flops = kStateOps * all * real(local_.recurrence.state);
      small.compute_ceiling = ceilings.compute;
    }
    charge(pass[OpClass::elementwise], small, layers);

    if (serving_.tensor_parallel > 1) {
      const double devices = real(serving_.tensor_parallel);
      // A ring moves (t - 1) / t of the message twice; an all-reduce before each residual addition.
      const double moved = 2 * (devices - 1) / devices * all * hidden * activation_;
      const Link& link = machine_.device;
      OpTime reduce;
      reduce.bytes = moved;
      reduce.memory = moved / link.bandwidth;
      reduce.overhead = link.latency;
      reduce.seconds = reduce.memory + reduce.overhead;
      add(pass[OpClass::communication], reduce, additions(kind) * layers);
    }
  }
}

void DevicePass::head(PassTime& pass, std::uint64_t rows) const {
  charge(pass[OpClass::head], product(batch_ * real(rows), real(model_.hidden), vocab_, head_bytes_), 1);
}

/// Keys and values of one lane as they are stored.
double DevicePass::lane_bytes(const LaneTokens& tokens) const {
  const Storage& storage = serving_.layout.storage;
  const std::uint64_t lanes = storage.together ? model_.kv_heads : 1;
  return real(stored_bytes(storage, model_, lanes, tokens)) / real(lanes);
}

void DevicePass::decode_numbers(Demand& attention, const policy::Cost& cost, double numbers) {
  attention.flops += numbers * cost.read_number.flops;
  attention.ops += numbers * cost.read_number.ops;
  attention.bytes += numbers * cost.read_number.bytes;
}

double DevicePass::attention_start(double cache_bytes) const {
  const double size = machine_.cache == 0 ? 1 : std::min(1.0, cache_bytes / real(machine_.cache));
  return machine_.ceilings.attention_launch * (kLeastStart + (1 - kLeastStart) * size);
}

/// `window`: the most keys that a row reaches, or `chunked` those of its chunk; 0: all.
Demand DevicePass::chunk_attention(const policy::Cost& cost, std::uint64_t tokens, std::uint64_t past,
                                   std::uint64_t window, bool chunked) const {
  const Ceilings& ceilings = machine_.ceilings;
  const double width = real(model_.prompt_key_dim()) + real(model_.prompt_value_dim());
  const std::uint64_t reach = cached_reach(past, window, chunked);
  // A latent is expanded into keys and values of all heads, which are read then.
  const bool expanded = model_.latent.rank != 0;
  const double cache = expanded ? batch_ * real(reach + tokens) * query_heads_ * width * activation_
                                : batch_ * stored_heads_ * lane_bytes({.kept = reach + tokens});
  Demand attention{.bytes = batch_ * activation_ * real(tokens) * query_heads_ * width + cache,
                   .compute_ceiling = ceilings.attention_compute,
                   .memory_ceiling = ceilings.attention_memory,
                   .overhead = attention_start(cache)};
  double pairs = batch_ * query_heads_;
  if (serving_.runtime.attention == Attention::flash) {
    pairs *= attended_pairs(tokens, past, window, chunked);
    attention.compute_ceiling /= tile_padding(tokens, past, ceilings.attention_rows);
  } else {
    // Unfused products compute the whole rectangle and mask half of it.
    pairs *= real(tokens) * real(past + tokens);
    attention.ops = kSoftmaxOps * pairs;
    attention.bytes += kScorePasses * activation_ * pairs;
  }
  attention.flops = 2 * width * pairs;
  // Those of earlier chunks are expanded once more.
  if (expanded)
    attention.flops += 2 * batch_ * real(reach) * real(model_.latent.rank) * query_heads_ *
                       real(model_.latent.plain + model_.latent.value);
  // Its own tokens are attended to as they come, those of earlier chunks as they are stored.
  if (reach > 0)
    decode_numbers(attention, cost,
                   batch_ * stored_heads_ * coded_numbers(serving_.layout.storage, model_, {.kept = reach}));
  return attention;
}

void DevicePass::prefill_attention(PassTime& pass, const policy::Cost& cost, std::uint64_t tokens,
                                   std::uint64_t past, std::uint64_t crossing) const {
  const std::uint64_t rows = crossing_layers_ > 0 ? crossing : tokens;
  if (rows == 0) return;
  for (const auto& [layers, window] : model_.window_runs())
    charge(pass[OpClass::attention],
           chunk_attention(cost, rows, past + tokens - rows, window, model_.chunked),
           real(layers) * readers_);
}

void DevicePass::streamed_attention(PassTime& pass, const policy::Cost& cost, std::uint64_t tokens,
                                    std::uint64_t past, const Holding& holding) const {
  for (const EqualLayers& group : holding.layers) {
    const std::uint64_t window = group.within_window(std::max<std::uint64_t>(1, group.longest(0)));
    charge(pass[OpClass::attention], chunk_attention(cost, tokens, past, window, false), real(group.layers));
  }
}

DevicePass::Read DevicePass::held(const EqualLayers& group, std::uint64_t step) const {
  const Storage& storage = serving_.layout.storage;
  const std::uint64_t reach = group.within_window(kNoLimit);
  Read read;
  const auto add = [&](double lanes, const LaneTokens& tokens) {
    read.slots += lanes * real(tokens.all());
    read.bytes += lanes * lane_bytes(tokens);
    read.coded += lanes * coded_numbers(storage, model_, tokens);
  };
  if (serving_.layout.padded) {
    const auto longest =
        std::max_element(group.lanes.begin(), group.lanes.end(),
                         [&](const EqualLanes& a, const EqualLanes& b) { return a.at(step) < b.at(step); });
    add(stored_heads_, longest->tokens(step, reach));
    return read;
  }
  for (const EqualLanes& lanes : group.lanes)
    add(stored_share_ * real(lanes.lanes), lanes.tokens(step, reach));
  return read;
}

std::vector<DevicePass::Read> DevicePass::reads_of(const Holding& holding, const EqualLayers& group,
                                                   std::uint64_t step) const {
  Read all = held(group, step);
  all.lane_tokens = all.slots / stored_heads_;
  if (!serving_.layout.selection) return {all};
  std::uint64_t layer = 0;
  for (const EqualLayers* before = holding.layers.data(); before != &group; ++before) layer += before->layers;
  std::vector<Read> out;
  for (std::uint64_t i = 0; i < group.layers; ++i, ++layer) {
    const LayerReads selected =
        layer_reads(serving_.layout.selection, model_, layer, all.slots / stored_heads_);
    out.push_back({.slots = all.slots * selected.head_share,
                   .bytes = all.bytes * selected.lane_share,
                   .coded = all.coded * selected.lane_share,
                   .index_bytes = selected.index_bytes_read * stored_share_,
                   .lane_tokens = all.lane_tokens * selected.lane_share,
                   .run_tokens = selected.run_tokens,
                   .first = layer == 0});
  }
  return out;
}

Demand DevicePass::rows_demand(double sequences, double pairs, double moved, double cache,
                               double index) const {
  const Ceilings& ceilings = machine_.ceilings;
  const double width = real(model_.head_dim) + real(model_.value_dim);
  Demand attention{.flops = 2 * width * pairs,
                   .bytes = moved + index + sequences * activation_ * query_heads_ * width,
                   .compute_ceiling = ceilings.attention_compute,
                   .memory_ceiling = ceilings.attention_memory};
  if (serving_.runtime.attention == Attention::eager) {
    attention.ops = kSoftmaxOps * pairs;
    attention.bytes += kScorePasses * activation_ * pairs;
  }
  // Choosing multiplies each 16-bit number of the index by one of every query that shares it.
  attention.flops += index * (query_heads_ / stored_heads_);
  attention.overhead = attention_start(cache) + ceilings.attention_sequence * std::sqrt(sequences);
  return attention;
}

void DevicePass::decode_attention(PassTime& pass, const Holding& holding, const policy::Cost& cost,
                                  std::uint64_t step, std::uint64_t rows) const {
  const double group_size = query_heads_ / stored_heads_;
  const double width = real(model_.head_dim) + real(model_.value_dim);
  for (const EqualLayers& group : holding.layers) {
    const std::vector<Read> reads = reads_of(holding, group, step);
    for (const Read& read : reads) {
      const double index = batch_ * read.index_bytes;
      Demand attention = rows_demand(batch_, real(rows) * batch_ * group_size * read.slots,
                                     serving_.runtime.cache_traffic * batch_ * read.bytes,
                                     batch_ * read.bytes + index, index);
      attention.bytes += real(rows - 1) * batch_ * activation_ * query_heads_ * width;
      decode_numbers(attention, cost, batch_ * read.coded);
      const double layers = real(group.layers) * readers_ / real(reads.size());
      OpTime& time = pass[OpClass::attention];
      const double before = time.seconds;
      charge(time, attention, layers);
      if (index > 0) pass.choosing += (time.seconds - before) * index / attention.bytes;
    }
  }
}

void DevicePass::chunks_attention(PassTime& pass, std::span<const Chunk> chunks) const {
  if (chunks.empty()) return;
  for (const auto& [layers, window] : windows_) {
    Demand all{.compute_ceiling = 1, .memory_ceiling = machine_.ceilings.attention_memory};
    double work = 0, cache = 0;
    for (const Chunk& chunk : chunks) {
      const Demand one = chunk_attention({}, chunk.tokens, chunk.past, window, model_.chunked);
      const std::uint64_t reach = cached_reach(chunk.past, window, model_.chunked);
      cache += stored_heads_ * lane_bytes({.kept = reach + chunk.tokens});
      all.flops += one.flops;
      all.ops += one.ops;
      all.bytes += one.bytes;
      work += one.flops / one.compute_ceiling;  // whole tiles, which differ by chunk
    }
    all.compute_ceiling = all.flops / work;
    all.overhead = attention_start(cache);
    charge(pass[OpClass::attention], all, real(layers));
  }
}

void DevicePass::rows_attention(PassTime& pass, std::uint64_t sequences, std::uint64_t attended,
                                std::uint64_t within_window, const std::optional<SharedRows>& shared) const {
  if (sequences == 0) return;
  for (const auto& [layers, window] : windows_) {
    const std::uint64_t seen = window == 0 ? attended : within_window;
    const SharedRows read = shared.value_or(SharedRows{.tokens = seen});
    const double bytes = stored_heads_ * lane_bytes({.kept = read.tokens});
    Demand rows = rows_demand(real(sequences), query_heads_ * real(seen),
                              serving_.runtime.cache_traffic * bytes, bytes, 0);
    // A partial result has a logarithm of 32 bits beside its row, for each query head.
    rows.bytes +=
        2 * real(read.partials) * query_heads_ * (real(model_.value_dim) * activation_ + sizeof(float));
    rows.overhead += real(read.levels - 1) * attention_start(bytes);
    charge(pass[OpClass::attention], rows, real(layers));
  }
}

/// Returns the demand for attention rows of the prompt that a fused kernel does not return, per sequence and
/// layer.
Demand DevicePass::score_rows(const policy::Cost& cost) const {
  const Ceilings& ceilings = machine_.ceilings;
  Demand rows{.compute_ceiling = ceilings.attention_compute, .memory_ceiling = ceilings.attention_memory};
  if (cost.prompt_rows == 0 || serving_.runtime.attention == Attention::eager) return rows;
  const double prompt = real(serving_.prompt), key = real(model_.prompt_key_dim());
  const double read_keys =  // as they come: the prompt is processed with exact numbers
      stored_heads_ * prompt * real(model_.head_dim) * real(serving_.layout.storage.element_bits) / 8;
  if (cost.prompt_rows != policy::kAllRows) {
    const double pairs = query_heads_ * std::min(real(cost.prompt_rows), prompt) * prompt;
    rows.flops = 2 * key * pairs;
    rows.ops = kSoftmaxOps * pairs;
    rows.bytes = read_keys + 2 * activation_ * pairs;  // the scores, written and read
  } else if (serving_.runtime.rows == RowSource::written) {
    rows.bytes = kScorePasses * activation_ * query_heads_ * prompt * prompt;
  } else {
    const double pairs = query_heads_ * prompt * (prompt + 1) / 2;
    rows.flops = 2 * key * pairs;
    rows.ops = kSoftmaxOps * pairs;
    rows.bytes = read_keys + activation_ * query_heads_ * prompt * key;
  }
  rows.overhead = 2 * ceilings.launch;  // scores, softmax
  return rows;
}

void DevicePass::Copies::add(const Copies& other) {
  cost::add(links, other.links, 1);
}

DevicePass::Copies DevicePass::copies(const PerTier<double>& shares, double bytes, double pieces) const {
  const auto over = [&](const Link& link, double share) {
    const double carried = share * bytes;
    // A machine that is the host has no link to host memory to cross.
    if (carried == 0 || link.bandwidth <= 0) return LinkTime{};
    const double operations = std::max(1.0, share * pieces);
    return LinkTime{carried, carried / link.bandwidth + link.latency + operations * link.operation};
  };
  return {{.host = over(machine_.host, shares.host + shares.ssd), .ssd = over(machine_.ssd, shares.ssd)}};
}

DevicePass::Copies DevicePass::weights_load() const {
  return copies(serving_.offload.weights, matrix_bytes_ * block_parameters_, 1);
}

template <class Tokens>
DevicePass::Copies DevicePass::cache_move(const EqualLayers& group, Tokens tokens) const {
  if (serving_.offload.cache_away() == 0) return {};
  double bytes = 0;
  for (const EqualLanes& lanes : group.lanes)
    bytes += stored_share_ * real(lanes.lanes) * lane_bytes(tokens(lanes));
  return copies(serving_.offload.cache, batch_ * bytes, 1);
}

double DevicePass::found(const EqualLayers& group, const Read& read) const {
  const Offload& offload = serving_.offload;
  const double away = offload.cache_away() * read.lane_tokens;
  if (offload.buffer == 0 || away == 0) return 0;
  // What reads everything reads what the step before has read.
  const double otherwise = read.run_tokens == 0 ? 1 : offload.hit_rate;
  double hits = 0, lanes = 0;
  for (const EqualLanes& of : group.lanes) {
    hits += real(of.lanes) * of.hits.value_or(otherwise);
    lanes += real(of.lanes);
  }
  return std::min(hits / lanes, real(offload.buffer) / away);
}

double DevicePass::pieces(const Read& read) const {
  const double page = real(serving_.layout.page);
  if (read.run_tokens == 0 && page == 0) return 1;  // a layer is one copy
  const double run = read.run_tokens == 0 ? page
                     : page == 0          ? read.run_tokens
                                          : std::min(page, read.run_tokens);
  // The keys and the values of each; lanes that share pages lie beside each other where all are read.
  const bool together = read.run_tokens == 0 && !serving_.layout.head_pages;
  return 2 * (together ? 1 : stored_heads_) * read.lane_tokens / run;
}

/// `block(EqualLayers, compute)`: one layer that computes for `compute` seconds.
template <class BlockOf>
void DevicePass::let_wait(PassTime& pass, const Holding& holding, BlockOf block_of) const {
  if (!serving_.offload.any()) return;
  const double compute = (pass.seconds() - pass[OpClass::head].seconds) / real(model_.layers);
  for (const EqualLayers& group : holding.layers) {
    const double layers = real(group.layers);
    for (const std::vector<Block> blocks = block_of(group, compute); const Block& block : blocks) {
      const double times = layers / real(blocks.size());
      pass.transfer += times * (block.seconds - compute);
      pass.loading += times * block.loading;
      pass.asked += times * block.asked;
      pass.found += times * block.found;
      add(pass.links, block.loads.links, times);
    }
  }
}

void DevicePass::prefill_transfers(PassTime& pass, std::uint64_t tokens, std::uint64_t past,
                                   const Holding& holding, bool streams) const {
  let_wait(pass, holding, [&](const EqualLayers& group, double compute) {
    const std::uint64_t read = group.within_window(past);
    const auto before = [&](const EqualLanes& lanes) {
      return LaneTokens{.kept = streams ? std::min(read, lanes.at(0)) : read};
    };
    const auto kept = [&](const EqualLanes& lanes) {
      return LaneTokens{.kept = std::min(tokens, lanes.at(0))};
    };
    Block block{.loads = weights_load()};
    block.loads.add(cache_move(group, before));
    block.loading = block.loads.seconds();
    block.seconds = prefill_block(block.loading, cache_move(group, kept).seconds(), compute);
    return std::vector{block};
  });
}

DevicePass::Block DevicePass::step_block_of(const EqualLayers& group, const Read& read, double store,
                                            double compute) const {
  const Offload& offload = serving_.offload;
  const double share = found(group, read), bytes = batch_ * read.bytes, here = 1 - share;
  const auto chosen = [&](double part) {
    return copies(offload.cache, part * bytes, part * batch_ * pieces(read));
  };
  Block block{.loads = weights_load(),
              .asked = offload.cache_away() * bytes,
              .found = offload.cache_away() * bytes * share};
  const Copies cache = chosen(here);
  if (!offload.prefetch) {
    block.loads.add(cache);
    block.loading = block.loads.seconds();
    block.seconds = step_block(block.loading, store, compute);
    return block;
  }
  // What a selection chooses is guessed from the layer before, if there is one; as much is loaded for a wrong
  // guess as for a right one.
  const bool known = read.run_tokens == 0;
  const bool guessed = known || !read.first;
  const double wrong = known ? 0 : guessed ? 1 - *offload.prefetch : 1;
  if (guessed) block.loads.add(cache);
  const double early = block.loads.seconds();
  const Copies rest = chosen(wrong * here);
  block.loads.add(rest);
  block.loading = early + rest.seconds();
  block.seconds = ahead_block(early, rest.seconds(), store, compute);
  return block;
}

void DevicePass::step_transfers(PassTime& pass, const Holding& holding, std::uint64_t step) const {
  let_wait(pass, holding, [&](const EqualLayers& group, double compute) {
    const double store =
        cache_move(group, [](const EqualLanes&) { return LaneTokens{.appended = 1}; }).seconds();
    std::vector<Block> blocks;
    for (const Read& read : reads_of(holding, group, step))
      blocks.push_back(step_block_of(group, read, store, compute));
    return blocks;
  });
}

Demand DevicePass::demand(const policy::Work& work, double times) const {
  const Ceilings& ceilings = machine_.ceilings;
  return {.flops = times * share_ * work.flops,
          .ops = times * share_ * work.ops,
          .bytes = times * share_ * work.bytes,
          .compute_ceiling = ceilings.attention_compute,
          .memory_ceiling = ceilings.memory,
          .overhead = work.launches * ceilings.launch};
}

void DevicePass::prompt_policy(PassTime& pass, const policy::Cost& cost) const {
  Demand rows = score_rows(cost);
  rows.flops *= batch_;
  rows.ops *= batch_;
  rows.bytes *= batch_;
  charge(pass[OpClass::policy], rows, cached_layers_);
  charge(pass[OpClass::policy], demand(cost.prompt, batch_), cached_layers_);
}

void DevicePass::step_policy(PassTime& pass, const Holding& holding, const policy::Cost& cost,
                             std::uint64_t step) const {
  const bool rows = cost.decode_rows && serving_.runtime.attention == Attention::flash;
  if (!rows && idle(cost.step) && idle(cost.step_slot) && idle(cost.leaving) && idle(cost.leaving_slot))
    return;
  const double stored = real(stored_heads(model_, serving_.layout));
  for (const EqualLayers& group : holding.layers) {
    const double tokens = real(group.tokens(step)) / stored;
    const FullLanes full(group, step);
    Demand work = demand(cost.step + tokens * cost.step_slot + full.lanes / stored * cost.leaving +
                             full.tokens / stored * cost.leaving_slot,
                         batch_);
    if (rows) work.bytes += batch_ * 2 * activation_ * query_heads_ * tokens;  // written and read
    charge(pass[OpClass::policy], work, real(group.layers));
  }
}

}  // namespace kvsim::cost
