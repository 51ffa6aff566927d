#pragma once
/// A prompt that reaches a cache in chunks. After each chunk the policy ranks what the unit holds, the chunk
/// included, as its prompt, and evicts down to the unit's budget. To the policy that prompt has positions 0,
/// 1, 2, ...; keys and queries are those of the text, so that attention rows are true ones.
#include <memory>
#include <string>
#include <vector>

#include "sim/loop/loop_unit.hpp"
#include "sim/loop/stream.hpp"
#include "sim/replay/replay_unit.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Why the eviction cannot rank a prompt that comes in chunks; empty: it can.
std::string chunk_refusal(const policy::Part& eviction, const trace::Sequence& sequence, std::size_t length);

/// One unit of a stream while its prompt arrives.
struct ChunkedUnit {
  std::size_t layer = 0, first_lane = 0, n_lanes = 1;
  std::vector<policy::Position> residents{};  ///< ascending: what was kept, and the present chunk
  std::vector<std::uint32_t> shifts{};        ///< of positions counted in the cache once; empty: none
};

/// A policy that has ranked a unit's residents, and its cache.
class RankedResidents {
 public:
  /// `sequence` is the text that the residents are of; `own` are the stream's rows of the unit's layer, from
  /// position 0 on. `length`: tokens that the cache will see in all, the residents included. `cell`, `log`:
  /// as in ReplayUnit::start().
  RankedResidents(const trace::Sequence& sequence, const OwnRows& own, const ChunkedUnit& at,
                  const policy::Part& eviction, std::size_t budget, std::size_t length,
                  const Request& request, std::size_t cell, bool log);
  ~RankedResidents();

  /// What it keeps, as positions of the text, ascending.
  std::vector<policy::Position> kept() const;
  /// The unit with its one cache, in the coordinates of the policy.
  LoopUnit unit() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::sim
