#include "sim/cost/latency.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/cost/device_pass.hpp"

namespace kvsim::cost {
namespace {

void wait_for_host(PassTime& pass, const Runtime& runtime) {
  pass.host = std::max(0.0, runtime.host_floor - pass.seconds());
}

/// Adds what is no operation of the device.
void add_waits(PassTime& sum, const PassTime& pass, double times) {
  add(sum.links, pass.links, times);
  sum.loading += times * pass.loading;
  sum.transfer += times * pass.transfer;
  sum.asked += times * pass.asked;
  sum.found += times * pass.found;
  sum.host += times * pass.host;
}

/// The passes over a prompt, without compression.
class PromptPasses {
 public:
  PromptPasses(const DevicePass& device, const Serving& serving, const Holding& holding,
               const policy::Cost& cost)
      : device_(device), serving_(serving), holding_(holding), cost_(cost) {}

  PassTime chunk(std::uint64_t tokens, std::uint64_t past, std::uint64_t logits) const {
    PassTime pass;
    device_.dense(pass, tokens, 1, logits);
    if (cost_.streams && !device_.shares_cache())
      device_.streamed_attention(pass, cost_, tokens, past, holding_);
    else
      device_.prefill_attention(pass, cost_, tokens, past, logits);
    device_.prefill_transfers(pass, tokens, past, holding_, cost_.streams);
    if (logits > 0) device_.head(pass, logits);
    wait_for_host(pass, serving_.runtime);
    return pass;
  }

  PassTime all() const {
    const std::uint64_t prompt = serving_.prompt, size = serving_.chunk == 0 ? prompt : serving_.chunk;
    const std::uint64_t whole = (prompt - 1) / size, last = prompt - whole * size;
    const std::uint64_t logits = std::clamp<std::uint64_t>(serving_.runtime.logits_rows, 1, last);
    PassTime sum =
        sum_steps(1, whole, {}, [&](std::uint64_t number) { return chunk(size, (number - 1) * size, 0); });
    add(sum, chunk(last, prompt - last, logits), 1);
    return sum;
  }

 private:
  const DevicePass& device_;
  const Serving& serving_;
  const Holding& holding_;
  const policy::Cost& cost_;
};

/// Adds one more prefill without the last layer's MLP and the logits, times the share of requests that run
/// it. Its host is as slow as the first one's.
void add_extra_prefills(PassTime& pass, const DevicePass& device, const Serving& serving, double times) {
  if (times == 0) return;
  OpTime spared;
  device.one_mlp(spared, serving.prompt);
  OpTime all;
  for (const OpClass op : {OpClass::linear, OpClass::attention, OpClass::elementwise, OpClass::communication})
    add(all, pass[op], 1);
  add(all, spared, -1);
  add(pass[OpClass::policy], all, times);
  add_waits(pass, PassTime(pass), times);
}

/// Adds the passes in which the model repeats its prompt behind itself, without logits.
void add_second_pass(PassTime& pass, const PromptPasses& passes, std::uint64_t prompt,
                     std::uint64_t at_once) {
  if (at_once == 0) return;
  PassTime again;
  if (prompt >= at_once) add(again, passes.chunk(at_once, prompt, 0), static_cast<double>(prompt / at_once));
  if (prompt % at_once > 0) add(again, passes.chunk(prompt % at_once, prompt, 0), 1);
  for (const OpTime& op : again.ops) add(pass[OpClass::policy], op, 1);
  add_waits(pass, again, 1);
}

std::vector<std::uint64_t> limit_steps(const Holding& holding) {
  std::vector<std::uint64_t> steps;
  for (const EqualLayers& group : holding.layers)
    for (const EqualLanes& lanes : group.lanes)
      if (lanes.limit != kNoLimit && lanes.limit > lanes.after_prompt)
        steps.push_back(lanes.limit - lanes.after_prompt);
  return steps;
}

PassTime divided(const PassTime& sum, double count) {
  PassTime mean;
  add(mean, sum, 1 / count);
  return mean;
}

}  // namespace

const char* op_name(OpClass op) {
  constexpr const char* kNames[kOpClasses] = {"linear", "attention", "elementwise",
                                              "head",   "policy",    "communication"};
  return kNames[static_cast<std::size_t>(op)];
}

const char* bound_name(Bound bound) {
  constexpr const char* kNames[] = {"compute", "memory", "overhead"};
  return kNames[static_cast<std::size_t>(bound)];
}

Bound OpTime::bound() const {
  if (overhead > compute && overhead > memory) return Bound::overhead;
  return compute >= memory ? Bound::compute : Bound::memory;
}

double PassTime::seconds() const {
  double sum = transfer + host;
  for (const OpTime& op : ops) sum += op.seconds;
  return sum;
}

std::optional<double> PassTime::hidden() const {
  if (!(loading > 0)) return std::nullopt;
  return std::max(0.0, 1 - transfer / loading);
}

std::optional<double> PassTime::hit_rate() const {
  if (!(asked > 0)) return std::nullopt;
  return found / asked;
}

void add(PerTier<LinkTime>& sum, const PerTier<LinkTime>& links, double times) {
  for (const Tier tier : kTiers) {
    sum[tier].bytes += times * links[tier].bytes;
    sum[tier].seconds += times * links[tier].seconds;
  }
}

void add(OpTime& sum, const OpTime& op, double times) {
  sum.seconds += times * op.seconds;
  sum.flops += times * op.flops;
  sum.bytes += times * op.bytes;
  sum.compute += times * op.compute;
  sum.memory += times * op.memory;
  sum.overhead += times * op.overhead;
}

void add(PassTime& sum, const PassTime& pass, double times) {
  for (std::size_t op = 0; op < kOpClasses; ++op) add(sum.ops[op], pass.ops[op], times);
  sum.choosing += times * pass.choosing;
  add_waits(sum, pass, times);
}

double roofline(double compute_seconds, double memory_seconds, double norm) {
  if (norm == 2)  // the usual norm, without the cost of general powers
    return std::sqrt(compute_seconds * compute_seconds + memory_seconds * memory_seconds);
  const double larger = std::max(compute_seconds, memory_seconds);
  if (larger == 0) return 0;
  // Ratios of at most one: large norms neither overflow nor lose the larger time.
  return larger * std::pow(1 + std::pow(std::min(compute_seconds, memory_seconds) / larger, norm), 1 / norm);
}

PassTime prefill_time(const Model& model, const Machine& machine, const Serving& serving,
                      const Holding& holding, const policy::Cost& cost) {
  const DevicePass device(model, machine, serving);
  check_holding(model, stored_heads(model, serving.layout), holding);
  const PromptPasses passes(device, serving, holding, cost);
  PassTime pass = passes.all();
  add_extra_prefills(pass, device, serving, cost.extra_prefills * serving.runtime.row_share);
  add_second_pass(pass, passes, serving.prompt, cost.repeated_at_once);
  device.prompt_policy(pass, cost);
  return pass;
}

namespace {

/// The steps of one request; their common part is priced once.
class Steps {
 public:
  Steps(const DevicePass& device, const Serving& serving, const Holding& holding, const policy::Cost& cost)
      : device_(device), serving_(serving), holding_(holding), cost_(cost) {
    device.dense(shared_, 1);
    device.head(shared_, 1);
  }
  PassTime operator()(std::uint64_t step) const {
    PassTime pass = shared_;
    device_.decode_attention(pass, holding_, cost_, step);
    device_.step_policy(pass, holding_, cost_, step);
    device_.step_transfers(pass, holding_, step);
    wait_for_host(pass, serving_.runtime);
    return pass;
  }

 private:
  const DevicePass& device_;
  const Serving& serving_;
  const Holding& holding_;
  const policy::Cost& cost_;
  PassTime shared_{};
};

}  // namespace

PassTime step_time(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                   const policy::Cost& cost, std::uint64_t step) {
  const DevicePass device(model, machine, serving);
  check_holding(model, stored_heads(model, serving.layout), holding);
  return Steps(device, serving, holding, cost)(step);
}

PassTime pass_time(const Model& model, const Machine& machine, const Serving& serving, std::uint64_t tokens,
                   std::uint64_t past, bool logits) {
  const DevicePass device(model, machine, serving);
  if (tokens == 0) usage_error("a pass of no tokens takes no time", "new tokens");
  const std::uint64_t prefilled = past + (tokens > 1 ? tokens : 0);
  const Holding full = whole_holding(model, stored_heads(model, serving.layout), prefilled);
  if (tokens > 1) return PromptPasses(device, serving, full, {}).chunk(tokens, past, logits ? 1 : 0);
  PassTime pass;
  device.dense(pass, 1);
  device.decode_attention(pass, full, {}, 1);
  device.step_transfers(pass, full, 1);
  if (logits) device.head(pass, 1);
  wait_for_host(pass, serving.runtime);
  return pass;
}

PassTime verification_time(const Model& model, const Machine& machine, const Serving& serving,
                           std::uint64_t tokens, std::uint64_t past) {
  const Holding full = whole_holding(model, stored_heads(model, serving.layout), past);
  return verification_time(model, machine, serving, full, {}, tokens, tokens);
}

PassTime verification_time(const Model& model, const Machine& machine, const Serving& serving,
                           const Holding& holding, const policy::Cost& cost, std::uint64_t tokens,
                           std::uint64_t step) {
  const DevicePass device(model, machine, serving);
  PassTime pass;
  device.dense(pass, tokens);
  device.decode_attention(pass, holding, cost, step, tokens);
  device.step_policy(pass, holding, cost, step);
  device.step_transfers(pass, holding, step);
  device.head(pass, tokens);
  wait_for_host(pass, serving.runtime);
  return pass;
}

Latency latency(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                const policy::Cost& cost) {
  Latency out;
  out.prefill = prefill_time(model, machine, serving, holding, cost);
  out.first_token = out.request = out.prefill.seconds();
  if (serving.generate == 0) return out;
  if (serving.generate > 1) {
    const DevicePass device(model, machine, serving);
    const Steps step(device, serving, holding, cost);
    const std::uint64_t steps = serving.generate - 1;
    out.first_step = step(1);
    out.last_step = step(steps);
    out.mean_step = divided(sum_steps(1, steps, limit_steps(holding), step), static_cast<double>(steps));
    out.per_token = out.mean_step.seconds();
    out.request += static_cast<double>(steps) * out.per_token;
  }
  out.tokens_per_second =
      static_cast<double>(serving.batch) * static_cast<double>(serving.generate) / out.request;
  return out;
}

namespace {

constexpr std::uint64_t kShort = 8;  ///< steps that are added up one by one
constexpr double kTolerance = 1e-5;  ///< relative, of a step's time

using StepPass = std::function<PassTime(std::uint64_t)>;

/// The quadratic through the values at 0, `middle` and `end`.
struct Quadratic {
  double middle, end;

  struct Weights {
    double first, middle, last;
  };
  /// Returns the weights of the three values in the quadratic's value at x.
  Weights at(double x) const {
    return {(x - middle) * (x - end) / (middle * end), x * (x - end) / (middle * (middle - end)),
            x * (x - middle) / (end * (end - middle))};
  }
  /// Returns their weights in its sum over 0, 1, ..., end.
  Weights sum() const {
    const double n = end + 1, x = end * (end + 1) / 2, squares = end * (end + 1) * (2 * end + 1) / 6;
    return {(squares - (middle + end) * x + middle * end * n) / (middle * end),
            (squares - end * x) / (middle * (middle - end)), (squares - middle * x) / (end * (end - middle))};
  }
};

std::uint64_t share_of_piece(std::uint64_t end, double share) {
  return static_cast<std::uint64_t>(share * static_cast<double>(end));
}

void add_piece(PassTime& sum, std::uint64_t first, std::uint64_t last, const StepPass& pass) {
  const std::uint64_t end = last - first, middle = end / 2;
  if (end < kShort) {
    for (std::uint64_t step = first; step <= last; ++step) add(sum, pass(step), 1);
    return;
  }
  const PassTime a = pass(first), b = pass(first + middle), c = pass(last);
  const Quadratic quadratic{static_cast<double>(middle), static_cast<double>(end)};
  // The last two fall on no simple fraction of the piece: steps that repeat, as full windows do, would look
  // smooth at quarters that are whole numbers of periods.
  for (const std::uint64_t between : {end / 4, end - end / 4, share_of_piece(end, 0.3819660112501051),
                                      share_of_piece(end, 0.7082039324993691)}) {
    const auto weights = quadratic.at(static_cast<double>(between));
    const double guess =
        weights.first * a.seconds() + weights.middle * b.seconds() + weights.last * c.seconds();
    const double true_time = pass(first + between).seconds();
    if (std::abs(guess - true_time) <= kTolerance * true_time) continue;
    add_piece(sum, first, first + middle, pass);
    add_piece(sum, first + middle + 1, last, pass);
    return;
  }
  const auto weights = quadratic.sum();
  add(sum, a, weights.first);
  add(sum, b, weights.middle);
  add(sum, c, weights.last);
}

}  // namespace

PassTime sum_steps(std::uint64_t first, std::uint64_t last, std::vector<std::uint64_t> breaks,
                   const StepPass& pass) {
  PassTime sum;
  if (first > last) return sum;
  std::sort(breaks.begin(), breaks.end());
  breaks.erase(std::unique(breaks.begin(), breaks.end()), breaks.end());
  for (const std::uint64_t end : breaks) {
    if (end < first || end >= last) continue;
    add_piece(sum, first, end, pass);
    first = end + 1;
  }
  add_piece(sum, first, last, pass);
  return sum;
}

}  // namespace kvsim::cost
