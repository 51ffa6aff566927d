#pragma once
/// The caches of one cell while another program runs the model. The prompt is ranked, the budget split and
/// every later token admitted by the code of closed_loop() and replay(). Keys and values of what is held stay
/// with the caller, who moves them as admit() says.
///
///   CellCaches(...)   refuses what a running model cannot serve; first_query() says what begin() will read
///   begin(...)        the prompt is over: slots() are what each lane keeps of it
///   admit(...)        a token arrives in a layer: which slots leave, and which one it takes
///   attended(...)     its queries have attended the slots
///   ask_again(...)    right after the prompt: its last token is read once more, through what is held
///   rewind()          back to the end of the prompt, for another continuation
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/loop/closed_loop.hpp"

namespace kvsim::sim {

struct CellCachesRequest {
  Cell cell;
  std::uint64_t seed = 0;
  unsigned threads = 0;    ///< 0: as many as the machine has. Never changes a result.
  std::size_t length = 0;  ///< most tokens that the caches will see, the prompt included
};

class CellCaches {
 public:
  /// `prompt`: the header of a run of the prompt alone, with all of its queries. Throws Error(usage) for what
  /// closed_loop() skips, for representations and selections, and for a text longer than `length`.
  CellCaches(trace::Header prompt, CellCachesRequest request);
  ~CellCaches();

  /// Why no prompt's caches can be of it; empty: they can.
  static std::string refusal(const policy::Composition& composition);

  /// dense: the prompt is processed with full attention, and begin() ranks it. stream: it is admitted token
  /// by token, as what follows it is.
  Prefill prefill() const;
  std::uint64_t budget_tokens() const;  ///< mean per lane, as asked
  /// The first position whose query begin() needs; the last of the prompt at the latest.
  std::uint64_t first_query() const;

  /// `source`: keys, values and, from first_query() on, queries of the prompt; with the header of the
  /// constructor but for which queries it has. It is not read afterwards. With prefill stream it is not read.
  void begin(const trace::Source& source, Progress& progress);
  /// begin() of several caches of one prompt, seed and length, with prefill dense: what their policies read
  /// of it is computed once, and caches of one policy have its ranking in common. `source` has the queries
  /// that any of them needs. Returns of each why it cannot begin, or an empty text.
  static std::vector<std::string> begin_together(std::span<CellCaches* const> caches,
                                                 const trace::Source& source, Progress& progress);
  /// Every cache is as begin() has left it.
  void rewind();

  /// The text position in each slot of a lane.
  std::span<const policy::Position> slots(std::size_t layer, std::size_t lane) const;
  /// Whether a decoder evicts in any lane of the layer; otherwise tokens are only appended.
  bool decodes(std::size_t layer) const;
  /// Whether attended() needs the weights.
  bool needs_weights() const;

  /// What the arrival of a token has changed in lanes [first_lane, first_lane + n_lanes).
  struct Arrived {
    std::size_t first_lane = 0, n_lanes = 1;
    std::size_t own_slot = 0;  ///< of the token
    /// Slots that leave, in the decoder's order. What becomes of them and of those behind: SlotStore::join.
    std::vector<std::size_t> victims{};
  };
  /// `token`: keys and values [n_kv_heads, dim], queries [n_heads, dim]; all empty where nothing decodes. The
  /// tokens of a layer come in order of position.
  const std::vector<Arrived>& admit(std::size_t layer, const Token& token);
  /// The prompt's last token, with its new keys and values.
  void ask_again(std::size_t layer, const Token& token);
  /// The weights that the queries of the token that joined last give the slots: of each lane in turn [group,
  /// slots]; empty unless needs_weights().
  void attended(std::size_t layer, const Token& token, std::span<const float> weights);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::sim
