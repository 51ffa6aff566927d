#pragma once
/// What a run says in a line: times of requests, throughput, goodput, use of the engines.
#include <cstdint>
#include <optional>

#include "sim/base/spread.hpp"
#include "sim/requests/serving/serving_run.hpp"

namespace kvsim::serving {

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
