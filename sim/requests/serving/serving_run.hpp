#pragma once
/// A trace of requests served from the first arrival to the last token, by one engine or by replicas of it.
#include <cstdint>
#include <vector>

#include "sim/requests/serving/engine.hpp"
#include "sim/requests/serving/routing.hpp"

namespace kvsim::serving {

struct ServingSettings {
  EngineSettings engine{};  ///< of each replica
  std::uint32_t replicas = 1;
  RoutingSettings routing{};
  /// Requests arrive so many times as fast; the delay behind a parent stays as it is.
  double rate = 1;
};

struct ServingResult {
  std::vector<RequestOutcome> requests{};  ///< as in the trace
  std::vector<EngineUse> replicas{};
  double end = 0;  ///< s of the last token
};

/// Runs the trace on one thread; the result depends on the arguments alone. Times that fall together come in
/// this order: steps end, by replica; requests arrive, by their number; steps begin. `tree`: of the trace,
/// needed by prefix caches and hashed routing. Throws Error(usage) for settings that cannot be, Error(input)
/// for requests that cannot be served, with their line.
ServingResult serve(const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
                    const ServingSettings& settings, const StepPrice& price);

}  // namespace kvsim::serving
