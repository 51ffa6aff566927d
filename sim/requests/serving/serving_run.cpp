#include "sim/requests/serving/serving_run.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "sim/base/error.hpp"

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

void check_request(const RequestTrace& trace, std::uint32_t i) {
  const Request& request = trace.requests[i];
  const std::string where =
      request.line > 0 ? "line " + std::to_string(request.line) : "request " + std::to_string(i);
  if (!(request.time_s >= 0) || std::isinf(request.time_s))
    input_error("a request arrives at " + std::to_string(request.time_s) + " s", where,
                "times are seconds from 0 on");
  if (request.after_parent && request.parent >= i)
    input_error("a request waits for one that does not stand before it", where);
}

class Fleet {
 public:
  Fleet(const RequestTrace& trace, const prefix::PrefixTree* tree, const ServingSettings& settings,
        const StepPrice& price)
      : trace_(trace), tree_(tree), settings_(settings), children_(trace) {
    result_.requests.resize(trace.requests.size());
    for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
      result_.requests[i].prompt_tokens = trace.requests[i].prompt_tokens;
      result_.requests[i].generated_tokens = trace.requests[i].generated_tokens;
      if (!trace.requests[i].after_parent) arrivals_.push({trace.requests[i].time_s / settings.rate, i});
    }
    for (std::uint32_t i = 0; i < settings.replicas; ++i)
      engines_.push_back(std::make_unique<Engine>(settings.engine, trace, tree, price, result_.requests));
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
      arrivals_.push({end + trace_.requests[child].time_s, child});
  }

  void arrive(std::uint32_t request, double now) {
    RequestOutcome& outcome = result_.requests[request];
    outcome.arrival = now;
    if (!engines_.front()->holds(request)) {
      outcome.refused = true;
      return send_children(request, now);
    }
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

  const RequestTrace& trace_;
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

}  // namespace kvsim::serving
