#include "sim/requests/serving/serving_run.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::serving {
namespace {

using requests::Request;
using requests::RequestTrace;

constexpr std::uint32_t kMostReplicas = 1 << 16;

/// The requests that wait for the end of each one.
class Children {
 public:
  explicit Children(const RequestTrace& trace) : begins_(trace.requests.size() + 1, 0) {
    for (const Request& request : trace.requests)
      if (request.after_parent) ++begins_[request.parent + 1];
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    children_.resize(begins_.back());
    std::vector<std::uint64_t> next(begins_.begin(), begins_.end() - 1);
    for (std::uint32_t i = 0; i < trace.requests.size(); ++i)
      if (trace.requests[i].after_parent) children_[next[trace.requests[i].parent]++] = i;
  }
  std::span<const std::uint32_t> of(std::uint32_t request) const {
    return std::span(children_).subspan(begins_[request], begins_[request + 1] - begins_[request]);
  }

 private:
  std::vector<std::uint64_t> begins_;
  std::vector<std::uint32_t> children_{};
};

constexpr const char* kOverLongNames[] = {"refuse", "skip", "cut"};

std::string place_of(const RequestTrace& trace, std::uint32_t i) {
  const std::uint64_t line = trace.requests[i].line;
  return line > 0 ? "line " + std::to_string(line) : "request " + std::to_string(i);
}

void check_request(const RequestTrace& trace, std::uint32_t i) {
  const Request& request = trace.requests[i];
  const std::string where = place_of(trace, i);
  if (request.prompt_tokens == 0) input_error("a request without a prompt", where);
  if (!(request.time_s >= 0) || std::isinf(request.time_s))
    input_error("a request arrives at " + std::to_string(request.time_s) + " s", where,
                "times are seconds from 0 on");
  if (request.after_parent && request.parent >= i)
    input_error("a request waits for one that does not stand before it", where);
}

/// Tokens that are appended to a prompt: the last generated one is never stored.
std::uint64_t appended_tokens(const Request& request) {
  return std::max<std::uint32_t>(request.generated_tokens, 1) - 1;
}

bool holds(const Allocator& memory, const Request& request) {
  return memory.holds(request.prompt_tokens, appended_tokens(request));
}

/// The request with its first `stored` tokens, at least one of them of the prompt.
Request shortened(Request request, std::uint64_t stored) {
  if (stored < request.prompt_tokens) {
    request.prompt_tokens = static_cast<std::uint32_t>(stored);
    request.n_final_blocks = 0;  // what is generated stands elsewhere now
  }
  const std::uint64_t most = stored - request.prompt_tokens + 1;
  request.generated_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(request.generated_tokens, most));
  return request;
}

/// Cuts it so that the memory holds it; false, and nothing is changed, where that holds nothing.
bool cut(Request& request, const Allocator& memory) {
  if (!memory.holds(1, 0)) return false;
  std::uint64_t low = 1, high = request.prompt_tokens + appended_tokens(request);
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (holds(memory, shortened(request, middle)) ? low : high) = middle;
  }
  request = shortened(request, low);
  return true;
}

class Fleet {
 public:
  Fleet(const RequestTrace& trace, const prefix::PrefixTree* tree, const ServingSettings& settings,
        const StepPrice& price)
      : asked_(trace), tree_(tree), settings_(settings), children_(trace) {
    fit_requests();
    for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
      result_.requests[i].prompt_tokens = served().requests[i].prompt_tokens;
      result_.requests[i].generated_tokens = served().requests[i].generated_tokens;
      if (!trace.requests[i].after_parent) arrivals_.push({trace.requests[i].time_s / settings.rate, i});
    }
    for (std::uint32_t i = 0; i < settings.replicas; ++i)
      engines_.push_back(std::make_unique<Engine>(settings.engine, served(), tree, price, result_.requests));
  }

  ServingResult run() {
    for (double now = next_time(); std::isfinite(now); now = next_time()) {
      end_steps(now);
      while (!arrivals_.empty() && arrivals_.top().first <= now) {
        const auto [at, request] = arrivals_.top();
        arrivals_.pop();
        arrive(request, at);
      }
      for (const auto& engine : engines_)
        if (!engine->in_step() && !engine->idle()) engine->start_step(now);
    }
    for (const auto& engine : engines_) result_.replicas.push_back(engine->use());
    return std::move(result_);
  }

 private:
  const RequestTrace& served() const { return shorter_ ? *shorter_ : asked_; }

  /// Skips or cuts what the empty memory cannot hold.
  void fit_requests() {
    result_.requests.resize(asked_.requests.size());
    const std::unique_ptr<Allocator> memory = engine_memory(settings_.engine, asked_, tree_);
    std::size_t left = asked_.requests.size();
    std::optional<std::uint32_t> first;
    for (std::uint32_t i = 0; i < asked_.requests.size(); ++i) {
      const Request& asked = asked_.requests[i];
      if (holds(*memory, asked)) continue;
      if (!first) first = i;
      if (settings_.over_long == OverLong::refuse) break;
      Request request = asked;
      if (settings_.over_long == OverLong::skip || !cut(request, *memory)) {
        result_.requests[i].skipped = true;
        --left;
        continue;
      }
      if (!shorter_) shorter_ = asked_;
      shorter_->requests[i] = request;
      result_.requests[i].cut_tokens = std::uint64_t{asked.prompt_tokens} + asked.generated_tokens -
                                       request.prompt_tokens - request.generated_tokens;
    }
    if (first && (left == 0 || settings_.over_long == OverLong::refuse)) refuse(*first, *memory);
  }

  [[noreturn]] void refuse(std::uint32_t i, const Allocator& memory) const {
    const Request& request = asked_.requests[i];
    input_error("a request of " + std::to_string(request.prompt_tokens + appended_tokens(request)) +
                    " tokens, and the memory holds " + std::to_string(memory.longest()) + " of one sequence",
                place_of(asked_, i),
                settings_.over_long == OverLong::refuse ? "give more memory, or say --over-long skip or cut"
                                                        : "give more memory");
  }

  /// Infinite when nothing is left to do.
  double next_time() const {
    double next = arrivals_.empty() ? INFINITY : arrivals_.top().first;
    for (const auto& engine : engines_)
      if (engine->in_step()) next = std::min(next, engine->step_end());
    return next;
  }

  void end_steps(double now) {
    for (const auto& engine : engines_) {
      if (!engine->in_step() || engine->step_end() > now) continue;
      ended_.clear();
      engine->end_step(ended_);
      result_.end = now;
      for (const std::uint32_t request : ended_) send_children(request, now);
    }
  }

  /// What waits for the request arrives its pause after it has ended.
  void send_children(std::uint32_t request, double end) {
    for (const std::uint32_t child : children_.of(request))
      arrivals_.push({end + asked_.requests[child].time_s, child});
  }

  void arrive(std::uint32_t request, double now) {
    RequestOutcome& outcome = result_.requests[request];
    outcome.arrival = now;
    if (outcome.skipped) return send_children(request, now);
    std::uint32_t replica = 0;
    if (engines_.size() > 1) {
      unfinished_.clear();
      found_.clear();
      for (const auto& engine : engines_) {
        unfinished_.push_back(engine->unfinished());
        found_.push_back(engine->found(request));
      }
      replica = route(settings_.routing, request, tree_, unfinished_, found_);
      outcome.elsewhere_tokens = *std::max_element(found_.begin(), found_.end()) - found_[replica];
    }
    outcome.replica = replica;
    engines_[replica]->arrive(request);
  }

  using Arrival = std::pair<double, std::uint32_t>;

  const RequestTrace& asked_;
  std::optional<RequestTrace> shorter_{};  ///< where requests were cut
  const prefix::PrefixTree* tree_;
  const ServingSettings& settings_;
  const Children children_;
  ServingResult result_{};
  std::vector<std::unique_ptr<Engine>> engines_{};
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_{};
  std::vector<std::uint32_t> ended_{};
  std::vector<std::size_t> unfinished_{};
  std::vector<std::uint64_t> found_{};
};

}  // namespace

OverLong parse_over_long(std::string_view name) {
  if (const auto found = named_in<OverLong>(kOverLongNames, name)) return *found;
  usage_error("unknown treatment " + in_quotes(std::string(name)) + " of requests that are too long",
              "--over-long", "Say refuse, skip or cut.");
}

ServingResult serve(const RequestTrace& trace, const prefix::PrefixTree* tree,
                    const ServingSettings& settings, const StepPrice& price) {
  if (settings.replicas == 0 || settings.replicas > kMostReplicas)
    usage_error(
        "from 1 to " + std::to_string(kMostReplicas) + " replicas, not " + std::to_string(settings.replicas),
        "replicas");
  if (!(settings.rate > 0) || std::isinf(settings.rate))
    usage_error("requests that arrive " + std::to_string(settings.rate) + " times as fast", "rate",
                "a number above 0");
  const Routing routing = settings.routing.routing;
  if (routing == Routing::hashed && (tree == nullptr || settings.routing.hashed_blocks == 0))
    usage_error("hashed routing needs a trace with blocks, and one of them at least", "routing");
  if (routing == Routing::longest_prefix && !settings.engine.prefix_cache)
    usage_error("no replica keeps prefixes", "routing longest_prefix", "serve with a prefix cache");
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) check_request(trace, i);
  return Fleet(trace, tree, settings, price).run();
}

namespace {

constexpr const char* kNames[] = {"random", "hashed", "longest_prefix", "least_loaded"};

/// The same for all prompts that begin with the same blocks.
std::uint64_t key_of_blocks(const RoutingSettings& settings, std::uint32_t request,
                            const prefix::PrefixTree& tree) {
  const std::span<const prefix::Node> prompt = tree.prompt(request);
  if (prompt.empty()) return combine({settings.seed, request});
  const std::size_t last = std::min<std::size_t>(settings.hashed_blocks, prompt.size()) - 1;
  return combine({settings.seed, prompt[last]});
}

}  // namespace

const char* routing_name(Routing routing) {
  return name_in(kNames, routing);
}

Routing parse_routing(std::string_view name) {
  return parse_named<Routing>(kNames, name, "routing");
}

std::uint32_t route(const RoutingSettings& settings, std::uint32_t request, const prefix::PrefixTree* tree,
                    const std::vector<std::size_t>& unfinished, const std::vector<std::uint64_t>& found) {
  const std::size_t replicas = unfinished.size();
  if (settings.routing == Routing::random)
    return static_cast<std::uint32_t>(uniform01(combine({settings.seed, request})) *
                                      static_cast<double>(replicas));
  if (settings.routing == Routing::hashed)
    return static_cast<std::uint32_t>(key_of_blocks(settings, request, *tree) % replicas);
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < replicas; ++i) {
    if (settings.routing == Routing::longest_prefix && found[i] != found[best]) {
      if (found[i] > found[best]) best = i;
    } else if (unfinished[i] < unfinished[best]) {
      best = i;
    }
  }
  return best;
}

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
