#pragma once
/// A trace of requests served from the first arrival to the last token, by one engine or by replicas of it.
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/requests/serving/engine.hpp"
#include "sim/requests/serving/routing.hpp"

namespace kvsim::serving {

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

}  // namespace kvsim::serving
