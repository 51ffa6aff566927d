#pragma once
/// Indexes of keys that find those of the largest products with a query without looking at all of them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/params.hpp"

namespace kvsim::policy {

enum class IndexKind : std::uint8_t {
  flat,         ///< looks at every key
  ivf,          ///< keys in lists by k-means; looks at the lists of the centres nearest to the query
  graph,        ///< a hierarchical graph of keys near each other (HNSW: Malkov, Yashunin, TPAMI 2020)
  query_graph,  ///< a graph of keys that are nearest to the same query of the prompt
};

struct IndexRule {
  IndexKind kind = IndexKind::flat;
  std::size_t lists = 512;  ///< ivf: at most
  Amount probes{};          ///< ivf: of them, that a query looks at
  std::size_t degree = 16;  ///< graphs: links per key; HNSW has twice as many on its lowest level
  std::size_t beam = 100;   ///< graphs: best keys so far from whose links a search goes on
  std::size_t neighbours =
      8;  ///< query_graph: nearest keys of a query, of which the first is linked with all

  std::size_t lists_of(std::size_t keys) const;
  std::size_t probes_of(std::size_t keys) const;
  /// What the index of so many keys takes beside them: the most it may be (query_graph), or as it is.
  std::uint64_t bits(std::size_t keys, std::size_t dim) const;
  /// Keys that a search for `count` looks at: all (flat), if lists are equally long (ivf), or at most
  /// (graphs).
  std::size_t looked_at(std::size_t keys, std::size_t count) const;
  /// What a search reads beside keys, whatever the query: centres.
  std::uint64_t search_bits(std::size_t keys, std::size_t dim) const;
};

class KeyIndex {
 public:
  virtual ~KeyIndex() = default;
  /// Replaces `out` by the found keys of the largest products with the query, at most `count`, none of them
  /// removed; of equals the later one. Marks the keys that it has looked at.
  virtual void search(std::span<const float> query, std::size_t count, std::vector<char>& looked_at,
                      std::vector<std::size_t>& out) = 0;
  /// The key is found no longer; a graph still leads over it.
  virtual void remove(std::size_t key) = 0;
  /// What the index takes beside the keys.
  virtual std::uint64_t bits() const = 0;
};

/// `keys`: [n, dim], which the index holds; components that are not finite count as 0. `queries`: those of
/// the prompt whose nearest keys are linked, for a query_graph. `seed` draws centres and levels. Works on one
/// thread, and the same numbers give the same index.
std::unique_ptr<KeyIndex> make_key_index(const IndexRule& rule, std::vector<float> keys, std::size_t dim,
                                         std::span<const MatrixView> queries, std::uint64_t seed);

}  // namespace kvsim::policy
