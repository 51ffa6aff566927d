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
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Over which query heads correlations are averaged.
enum class HashScope { all, layer, head };

struct HashStudy {
  std::vector<std::size_t> bits;  ///< lengths, each in [1, 64]
  std::size_t projections = 1;    ///< distances are averaged over so many, at least 1
  std::size_t skip = 0;           ///< first positions that are left out: attention sinks
  HashScope per = HashScope::all;
  std::uint64_t seed = 0;
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
};

/// Correlations of the query heads of a scope.
struct Correlations {
  std::size_t defined = 0, undefined = 0;  ///< undefined: attention or distance is the same everywhere
  std::optional<double> mean;              ///< over those defined
  std::optional<double> spread;            ///< their population standard deviation
};

struct HashCorrelation {
  std::size_t bits = 0;
  std::optional<std::uint64_t> layer;  ///< none: all layers
  std::optional<std::uint64_t> head;   ///< query head within the layer; none: all of them
  Correlations trace;
  /// Query and keys i.i.d. standard normal, one draw per query head, as many visible keys of as many
  /// components, softmax of q.k / sqrt(components).
  Correlations noise;
};

/// One entry per scope and length: scopes in order of layers and heads, lengths as asked. Hashes of keys and
/// queries are those of one projection per (seed, layer, KV head); a longer hash begins with the bits of a
/// shorter one. Keys that a sliding window hides are left out. Throws Error(usage) for an empty study, a
/// length out of range, or a trace without the last prompt query; Error(input) when the trace is damaged.
std::vector<HashCorrelation> hash_correlation(const trace::Sequence& sequence, const HashStudy& study,
                                              Progress& progress);

/// Pearson's correlation; nothing when either side is constant or they have no entries. Equal lengths.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

}  // namespace kvsim::sim
