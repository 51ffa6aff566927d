#include "sim/requests/serving/serving_summary.hpp"

#include <algorithm>

#include "sim/base/sizes.hpp"

namespace kvsim::serving {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace

bool good(const RequestOutcome& request, const Slo& slo) {
  if (slo.ttft && request.ttft() > *slo.ttft) return false;
  const std::optional<double> tpot = request.tpot();
  return !slo.tpot || !tpot || *tpot <= *slo.tpot;
}

ServingSummary summary_of(const ServingResult& result, const Slo& slo, std::uint64_t capacity) {
  ServingSummary out;
  for (const RequestOutcome& request : result.requests) ++(request.skipped ? out.skipped : out.requests);
  if (out.requests == 0) return out;
  std::vector<double> queueing, ttft, tpot, latency, gap;
  double first = result.end, runs = 0;
  std::uint64_t kept_limits = 0, prompt = 0, generated = 0, hits = 0, from_host = 0;
  for (const RequestOutcome& request : result.requests) {
    if (request.skipped) continue;
    out.cut += request.cut_tokens > 0 ? 1 : 0;
    first = std::min(first, request.arrival);
    queueing.push_back(request.queueing());
    ttft.push_back(request.ttft());
    latency.push_back(request.end - request.arrival);
    if (const auto per_token = request.tpot()) {
      tpot.push_back(*per_token);
      gap.push_back(request.longest_gap);
    }
    kept_limits += good(request, slo) ? 1 : 0;
    prompt += request.prompt_tokens;
    generated += request.generated_tokens;
    hits += request.hit_tokens;
    from_host += request.host_tokens;
    out.computed_tokens += request.computed_tokens;
    out.elsewhere_tokens += request.elsewhere_tokens;
    out.swap_seconds += request.swap_seconds;
    runs += request.runs;
  }
  out.queueing = spread_of(std::move(queueing));
  out.ttft = spread_of(std::move(ttft));
  out.tpot = spread_of(std::move(tpot));
  out.latency = spread_of(std::move(latency));
  out.longest_gap = spread_of(std::move(gap));
  out.seconds = result.end - first;
  out.requests_per_second = ratio(real(out.requests), out.seconds);
  out.prompt_per_second = ratio(real(prompt), out.seconds);
  out.generated_per_second = ratio(real(generated), out.seconds);
  if (slo.any()) {
    out.goodput = ratio(real(kept_limits), out.seconds);
    out.good_share = real(kept_limits) / real(out.requests);
  }
  out.hit_rate = ratio(real(hits), real(prompt));
  out.host_hit_rate = ratio(real(from_host), real(prompt));
  out.runs = runs / real(out.requests);

  EngineUse all;
  for (const EngineUse& use : result.replicas) {
    all.steps += use.steps;
    all.preemptions += use.preemptions;
    all.swap_copies += use.swap_copies;
    all.maps += use.maps;
    all.unmaps += use.unmaps;
    all.busy += use.busy;
    all.running += use.running;
    all.used += use.used;
    all.reserved += use.reserved;
    all.kept += use.kept;
    all.short_seconds += use.short_seconds;
    all.external += use.external;
    all.peak = std::max(all.peak, use.peak);
  }
  out.preemptions = all.preemptions;
  out.swap_copies = all.swap_copies;
  out.steps = all.steps;
  out.maps = all.maps;
  out.unmaps = all.unmaps;
  out.busy = ratio(all.busy, out.seconds * static_cast<double>(result.replicas.size()));
  out.running = ratio(all.running, all.busy);
  const double memory = all.busy * real(capacity);
  out.used = ratio(all.used, memory);
  out.internal = ratio(all.reserved - all.used, memory);
  out.kept = ratio(all.kept, memory);
  out.external = ratio(all.external, all.short_seconds * real(capacity));
  out.peak = ratio(real(all.peak), real(capacity));
  return out;
}

}  // namespace kvsim::serving
