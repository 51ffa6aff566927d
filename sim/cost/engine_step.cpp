#include "sim/cost/engine_step.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::cost {
namespace {

/// Longer steps are priced anew each time.
constexpr std::uint64_t kTabled = 1 << 16;

Serving one_sequence(Serving serving) {
  if (serving.layout.storage.representation || serving.layout.selection)
    usage_error("steps of an engine are priced for keys and values that are stored and read as they come",
                "layout");
  if (serving.offload.any())
    usage_error("steps of an engine are priced for weights and caches on the device", "offload");
  serving.prompt = serving.batch = 1;
  serving.generate = serving.chunk = 0;
  return serving;
}

std::uint64_t tokens_of(const StepWork& work) {
  std::uint64_t tokens = work.decoding;
  for (const Chunk& chunk : work.chunks) tokens += chunk.tokens;
  return tokens;
}

std::uint64_t sequences_of(const StepWork& work) {
  return work.decoding + work.chunks.size();
}

/// The entry of `table` for `n`, computed where it is not there yet.
template <class Price>
double tabled(std::vector<double>& table, std::uint64_t n, Price price) {
  if (n > kTabled) return price(n);
  if (n >= table.size()) table.resize(std::min(kTabled, 2 * n) + 1, -1);
  if (table[n] < 0) table[n] = price(n);
  return table[n];
}

}  // namespace

EngineStep::EngineStep(Model model, Machine machine, const Serving& serving)
    : model_(std::move(model)), machine_(std::move(machine)), serving_(one_sequence(serving)) {
  if (model_.crossing_layers() > 0)
    usage_error("steps of an engine are priced for prompts that pass through all layers",
                "model " + model_.name);
  device_ = std::make_unique<DevicePass>(model_, machine_, serving_);
}

PassTime EngineStep::pass(const StepWork& work) const {
  PassTime pass;
  const std::uint64_t tokens = tokens_of(work);
  if (tokens == 0) return pass;
  device_->dense(pass, tokens, sequences_of(work));
  device_->chunks_attention(pass, work.chunks);
  device_->rows_attention(pass, work.decoding, work.attended, work.within_window, work.shared);
  if (work.sampled > 0) device_->head(pass, work.sampled);
  pass.host = std::max(0.0, serving_.runtime.host_floor - pass.seconds());
  return pass;
}

double EngineStep::seconds(const StepWork& work) {
  const std::uint64_t tokens = tokens_of(work);
  if (tokens == 0) return 0;
  const auto dense = [&](std::uint64_t n) {
    PassTime pass;
    device_->dense(pass, n, sequences_of(work));
    return pass.seconds();
  };
  // Every sequence has a state of its own, where layers have one.
  double sum = model_.remembering_layers() > 0 ? dense(tokens) : tabled(dense_, tokens, dense);
  if (work.sampled > 0)
    sum += tabled(head_, work.sampled, [&](std::uint64_t n) {
      PassTime pass;
      device_->head(pass, n);
      return pass.seconds();
    });
  PassTime attention;
  device_->chunks_attention(attention, work.chunks);
  device_->rows_attention(attention, work.decoding, work.attended, work.within_window, work.shared);
  return std::max(serving_.runtime.host_floor, sum + attention[OpClass::attention].seconds);
}

}  // namespace kvsim::cost
