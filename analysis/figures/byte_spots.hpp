#pragma once
/// Bytes and a metric of every policy at every budget, as figures of bytes take them.
#include <string>
#include <vector>

#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {

/// A policy at a budget, by its means over traces or items.
struct ByteSpot {
  std::string policy;  ///< its label
  std::string family;  ///< its parts without their parameters: settings of one method share it
  std::string budget;
  double bytes = 0, value = 0;
};

/// What is counted, the index of a selection included.
enum class Bytes {
  held,  ///< stored: of results after the prompt, of answers at the end
  read,  ///< at a step
};

/// Those that no other one beats, fewest bytes first: not in bytes without losing in the metric, nor the
/// other way round.
std::vector<ByteSpot> front_of(std::vector<ByteSpot> spots, const Metric& metric);

/// The spots of what one figure is of.
struct ByteStudy {
  std::string cut{};  ///< of answers; empty for results, which are of one cut
  const Metric* metric = nullptr;
  std::vector<ByteSpot> spots{};
  std::vector<std::string> named{};  ///< policies with a name and a colour
  std::string axis{};                ///< what the bytes are, with their unit
};

/// Of every policy and budget that has both numbers, oracles left out; what decides by itself how much it
/// keeps once, not at every budget. Bytes read are of studies in which something selects what it reads:
/// otherwise they are those held.
///
/// Of results: by the metric chosen or the one that leads; by total variation where numbers are stored
/// otherwise and the leading metric is not defined. None: nothing has both.
std::vector<ByteStudy> replayed_bytes(const FigureTables& tables, const FigureChoice& choice, Bytes counted);
/// Of answers, one per cut: by the metric chosen, else by answers where the full cache has any right, else by
/// KL. Throws Error(usage) for a metric that answers do not have.
std::vector<ByteStudy> answered_bytes(const FigureTables& tables, const FigureChoice& choice, Bytes counted);

}  // namespace kvsim::analysis
