#pragma once
/// Measures how well SimHash tells which keys a query attends, as HashEvict does to choose its hash length.
///
/// For one query head it is the Pearson correlation, over the prompt's positions, between the attention that
/// the last prompt query pays and 1 - Hamming distance / bits between its hash and the keys'. The same number
/// is computed for queries and keys that are pure noise: SimHash correlates with attention by construction,
/// and longer hashes correlate more; the difference is what the trace adds.
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// The query heads that correlations are averaged over.
enum class HashScope { all, layer, head };

struct HashStudy {
  std::vector<std::size_t> bits;  ///< hash lengths, each in [1, 64]
  std::size_t projections = 1;    ///< projections that distances are averaged over, at least 1
  std::size_t skip = 0;           ///< first positions to leave out: attention sinks
  HashScope per = HashScope::all;
  std::uint64_t seed = 0;
  unsigned threads = 0;  ///< 0: as many as the machine has. Never changes a result.
};

/// The correlations of the query heads of a scope.
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
  /// The same for a query and keys that are i.i.d. standard normal: one draw per query head, as many visible
  /// keys, as many components, softmax of q.k / sqrt(components).
  Correlations noise;
};

/// Returns one entry per scope and length: scopes in order of layers and heads, lengths as in `study`. The
/// hashes of keys and queries are those of one projection per (seed, layer, KV head); a longer hash begins
/// with the bits of a shorter one. Keys that a sliding window hides are left out. Throws Error(usage) for an
/// empty study, a length out of range, or a trace without the last prompt query; Error(input) when the trace
/// is damaged.
std::vector<HashCorrelation> hash_correlation(const trace::Sequence& sequence, const HashStudy& study,
                                              Progress& progress);

}  // namespace kvsim::sim
