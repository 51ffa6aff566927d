#pragma once
/// A trace of requests served from the first arrival to the last token, by one engine or by replicas of it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/spread.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"
#include "sim/requests/serving/engine.hpp"

namespace kvsim::serving {

/// Which of several replicas a request goes to.
class Engine;

enum class Routing {
  random,          ///< each as likely, by the seed
  hashed,          ///< by the prompt's first blocks: who shares them meets
  longest_prefix,  ///< where most of the prompt is found; of equals the least loaded
  least_loaded,    ///< where the fewest requests have not ended; of equals the first
};
const char* routing_name(Routing routing);
/// Throws Error(usage) with the nearest names.
Routing parse_routing(std::string_view name);

struct RoutingSettings {
  Routing routing = Routing::least_loaded;
  std::uint64_t seed = 0;
  std::uint32_t hashed_blocks = 1;  ///< of the prompt, at most
};

/// Chooses a replica for a request that arrives. `found`: tokens of its prompt that each replica has, empty
/// where nobody asked. `tree`: needed by `hashed` alone.
std::uint32_t route(const RoutingSettings& settings, std::uint32_t request, const prefix::PrefixTree* tree,
                    const std::vector<std::size_t>& unfinished, const std::vector<std::uint64_t>& found);

/// What becomes of a request that the empty memory cannot hold.
enum class OverLong {
  refuse,  ///< the run is: Error(input) names the first
  skip,    ///< it is served to nobody and stands in no number; what waits for it comes its pause later
  cut,     ///< its answer ends where the memory does, or with one token, and then its prompt
};
/// Throws Error(usage) with the names.
OverLong parse_over_long(std::string_view name);

struct ServingSettings {
  EngineSettings engine{};  ///< of each replica
  std::uint32_t replicas = 1;
  RoutingSettings routing{};
  /// Requests arrive so many times as fast; the delay behind a parent stays as it is.
  double rate = 1;
  OverLong over_long = OverLong::refuse;
};

struct ServingResult {
  std::vector<RequestOutcome> requests{};  ///< as in the trace
  std::vector<EngineUse> replicas{};
  double end = 0;  ///< s of the last token
};

/// Runs the trace on one thread; the result depends on the arguments alone. Times that fall together come in
/// this order: steps end, by replica; requests arrive, by their number; steps begin. `tree`: of the trace,
/// needed by prefix caches and hashed routing. Throws Error(usage) for settings that cannot be, Error(input)
/// for requests that cannot be served, with their line, and where nothing is left to serve.
ServingResult serve(const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
                    const ServingSettings& settings, const StepPrice& price);

// What a run says in a line: times of requests, throughput, goodput, use of the engines.

/// Limits that a request must keep to count as good; nothing: no limit.
struct Slo {
  std::optional<double> ttft{}, tpot{};  ///< s
  bool any() const { return ttft || tpot; }
};
/// Requests of less than two tokens have no TPOT, and keep any limit of it.
bool good(const RequestOutcome& request, const Slo& slo);

struct ServingSummary {
  std::uint64_t requests = 0;  ///< that were served: all that follows is of these
  std::uint64_t skipped = 0;   ///< as no memory holds them
  std::uint64_t cut = 0;       ///< of those served, cut for the same reason
  double seconds = 0;          ///< from the first arrival to the last token
  // Of the requests that have one.
  Spread queueing{}, ttft{}, tpot{}, latency{};
  Spread longest_gap{};  ///< between two tokens of a request
  double requests_per_second = 0, prompt_per_second = 0, generated_per_second = 0;  ///< tokens
  /// Requests a second that keep the limits, and their share; nothing without limits.
  std::optional<double> goodput{}, good_share{};
  double hit_rate = 0;       ///< tokens of prompts found when their request started
  double host_hit_rate = 0;  ///< of these, what was copied from the host
  std::uint64_t computed_tokens = 0;
  /// Computed although another replica had them, when they arrived.
  std::uint64_t elsewhere_tokens = 0;
  std::uint64_t preemptions = 0, swap_copies = 0, steps = 0, maps = 0, unmaps = 0;
  double swap_seconds = 0;
  double busy = 0;     ///< share of the seconds, mean over replicas
  double running = 0;  ///< sequences at a time, while busy
  // Shares of the memory, while busy.
  double used = 0;      ///< tokens of sequences
  double internal = 0;  ///< reserved by sequences and not used
  double kept = 0;      ///< of no sequence, for later ones
  double external = 0;  ///< free while a request waits for memory; over those seconds
  double peak = 0;      ///< most that sequences had, of any replica
  double runs = 0;      ///< pieces in which a sequence lies at its end, mean
};
/// `capacity`: of the memory of one replica, in its unit.
ServingSummary summary_of(const ServingResult& result, const Slo& slo, std::uint64_t capacity);

}  // namespace kvsim::serving
