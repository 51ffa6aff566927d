#include "sim/requests/serving/served_model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/storage.hpp"

namespace kvsim::serving {
namespace {

std::uint64_t stored_lanes(const ServedModel& served) {
  return cost::local_kv_heads(cost::stored_heads(served.model, served.serving.layout),
                              served.serving.tensor_parallel);
}

/// Bytes of tables that all sequences share.
std::uint64_t shared_bytes(const ServedModel& served) {
  if (!served.serving.layout.storage.representation) return 0;
  cost::Serving one = served.serving;
  one.prompt = one.batch = 1;
  one.generate = 0;
  const cost::Holding holding =
      cost::full_holding(served.model, cost::stored_heads(served.model, one.layout), one.prompt);
  return cost::memory_at(served.model, served.machine, one, holding, {}, 0).shared_tables;
}

SequenceSizes sizes_of(const ServedModel& served, std::uint64_t block) {
  cost::Serving serving = served.serving;
  serving.layout.page = block;
  return [model = served.model, serving](const cost::LaneTokens& tokens) {
    return cost::sequence_bytes(model, serving, tokens);
  };
}

}  // namespace

bool tokens_differ(const ServedModel& served) {
  if (served.serving.layout.storage.representation) return true;
  if (served.kept) return false;
  return served.model.window > 0 || served.model.remembering_layers() > 0;
}

std::uint64_t token_bytes(const ServedModel& served) {
  if (served.kept) return static_cast<std::uint64_t>(std::ceil(served.kept->bytes));
  const cost::Storage& storage = served.serving.layout.storage;
  if (storage.representation) bug("the mean bytes of a token are not known", "representation");
  // Of eight tokens, so that numbers of less than a byte are not rounded up.
  return cost::checked_product(
      "a token", served.model.cached_layers(), stored_lanes(served),
      cost::ceil_divided(cost::stored_bytes(storage, served.model, 1, {.kept = 8}), 8));
}

std::uint64_t cache_bytes_left(const ServedModel& served, std::uint64_t step_tokens, double share) {
  if (!(share > 0 && share <= 1))
    usage_error("a share of " + std::to_string(share), "share of the memory", "above 0, at most 1");
  const cost::Model& model = served.model;
  cost::Serving step = served.serving;
  step.prompt = step.chunk = step_tokens;
  step.generate = 0;
  step.batch = 1;
  const std::uint64_t lanes = cost::stored_heads(model, step.layout);
  const cost::Holding all = cost::whole_holding(model, lanes, step_tokens);
  const cost::Memory peak = cost::prefill_peak(model, served.machine, step, all, {});
  const auto given = static_cast<std::uint64_t>(share * static_cast<double>(served.machine.memory));
  const std::uint64_t taken = cost::checked_sum("an engine", peak.weights, peak.activations, peak.reserved);
  if (given <= taken)
    usage_error(model.name + " leaves no memory for keys and values: " + std::to_string(taken) +
                    " bytes of weights, activations and runtime",
                "machine " + served.machine.name, "take a machine with more memory, or more devices");
  return given - taken;
}

std::uint64_t page_group_tokens(const ServedModel& served, std::uint64_t page_bytes) {
  const std::uint64_t element = cost::ceil_divided(served.serving.layout.storage.element_bits, 8);
  const std::uint64_t row = stored_lanes(served) * served.model.head_dim * element;
  return row > page_bytes
             ? 0
             : cost::tokens_per_page(page_bytes, stored_lanes(served), served.model.head_dim, element);
}

EngineSettings engine_settings(const ServedModel& served, EngineSettings settings, std::uint64_t cache_bytes,
                               std::uint64_t page_bytes) {
  const std::uint64_t bytes = token_bytes(served);
  AllocatorSettings& memory = settings.memory;
  cache_bytes -= std::min(cache_bytes, shared_bytes(served));
  memory.capacity = cache_bytes / bytes;
  if (memory.max_tokens == 0)
    memory.max_tokens = served.model.max_context > 0 ? served.model.max_context : memory.capacity;
  if (settings.prefix_cache && served.model.remembering_layers() > 0)
    usage_error("shares keys and values, and layers of " + served.model.name + " hold a state instead",
                "prefix cache", "serve without one: --policy none");
  if (tokens_differ(served) && !settings.prefix_cache) {
    if (settings.preemption == Preemption::swap)
      usage_error("copies tokens that take as much as any other, and those of this cache do not",
                  "preemption by swap", "preempt by recompute");
    memory.capacity = cache_bytes;
    memory.sizes = sizes_of(served, settings.allocator == AllocatorKind::paged ? memory.block : 0);
    memory.sizes_by_total = !served.serving.layout.storage.representation;
  }
  memory.page_group = page_group_tokens(served, page_bytes);
  SwapSettings& swap = settings.swap;
  swap.link = served.machine.host;
  swap.token_bytes = static_cast<double>(bytes);
  swap.run_copies = 2 * served.model.cached_layers();
  if (served.machine.host_memory > 0)
    swap.host_tokens =
        served.machine.host_memory / cost::checked_product("a token", bytes, served.serving.tensor_parallel);
  settings.window = served.model.window;
  return settings;
}

StepPrice step_price(const ServedModel& served) {
  ServedModel as_it_comes = served;
  as_it_comes.kept.reset();
  as_it_comes.serving.layout.storage.representation.reset();
  const auto step = std::make_shared<cost::EngineStep>(served.model, served.machine, as_it_comes.serving);
  if (!served.kept) return [step](const cost::StepWork& work) { return step->seconds(work); };
  const auto kept = std::make_shared<const KeptTokens>(*served.kept);
  const double share = kept->bytes / static_cast<double>(token_bytes(as_it_comes));
  const KeptTokens::Read read = kept->read.value_or(KeptTokens::Read{share, share});
  return [step, read, kept](const cost::StepWork& work) {
    // The tokens of this step are read as they come.
    const auto seen = [&](std::uint64_t tokens, double read_share) {
      const std::uint64_t past = tokens - std::min(tokens, work.decoding);
      return work.decoding + static_cast<std::uint64_t>(read_share * static_cast<double>(past));
    };
    cost::StepWork smaller = work;
    smaller.attended = seen(work.attended, read.all);
    smaller.within_window = seen(work.within_window, read.within_window);
    double seconds = step->seconds(smaller);
    if (kept->step && work.decoding > 0) seconds += kept->step(work.decoding);
    if (kept->compression)
      for (const cost::Chunk& chunk : work.chunks)
        seconds += kept->compression(chunk.past + chunk.tokens) -
                   (chunk.past > 0 ? kept->compression(chunk.past) : 0);
    return seconds;
  };
}

}  // namespace kvsim::serving
