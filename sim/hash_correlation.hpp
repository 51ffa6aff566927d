#pragma once
/// How well SimHash tells which keys a query attends: the measure behind HashEvict's choice of hash length.
///
/// For one query head: the Pearson correlation, over the prompt's positions, between the attention that the
/// last prompt query pays and 1 - Hamming distance / bits between its hash and the keys'. Beside it the same
/// number for queries and keys that are nothing but noise: SimHash correlates with attention by construction,
/// and longer hashes correlate more; what a trace adds to that is the difference.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/sequence.hpp"

namespace kvsim::sim {

struct HashStudy {
  std::vector<std::size_t> bits;  ///< lengths, each in [1, 64]
  std::size_t projections = 1;    ///< distances are averaged over so many, at least 1
  std::size_t skip = 0;           ///< first positions that are left out: attention sinks
  std::uint64_t seed = 0;
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
};

/// Correlations of every query head of every layer.
struct Correlations {
  std::size_t defined = 0, undefined = 0;  ///< undefined: attention or distance is the same everywhere
  std::optional<double> mean;              ///< over those defined
  std::optional<double> spread;            ///< their population standard deviation
};

struct HashCorrelation {
  std::size_t bits = 0;
  Correlations trace;
  /// Query and keys i.i.d. standard normal, one draw per query head, as many visible keys of as many
  /// components, softmax of q.k / sqrt(components).
  Correlations noise;
};

/// One entry per length, as asked. Hashes of keys and queries are those of one projection per (seed, layer,
/// KV head); a longer hash begins with the bits of a shorter one. Keys that a sliding window hides are left
/// out. Throws Error(usage) for an empty study, a length out of range, or a trace without the last prompt
/// query; Error(input) when the trace is damaged.
std::vector<HashCorrelation> hash_correlation(const trace::Sequence& sequence, const HashStudy& study,
                                              Progress& progress);

/// Pearson's correlation; nothing when either side is constant or they have no entries. Equal lengths.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

}  // namespace kvsim::sim
