#pragma once
/// The model answers through the compressed cache: what follows the cut attends what the policy keeps, layer
/// by layer, so that every later query, key, value and token feels what was evicted. The same policy objects,
/// budgets and allocations as in replay; both rank the prompt through the same code.
///
/// The prompt is processed once, with full attention. Its keys and values are shared by all cells; what
/// follows runs for all cells in step, one batch through the linear layers. The full cache is one of the
/// batch and the reference: a cell's numbers depend neither on the other cells nor on the number of threads,
/// and `full` equals the reference in every bit. Cells whose policies take the prompt token by token, and all
/// cells when the prompt comes in chunks, process the prompt themselves through their own caches, and have a
/// full cache that does so, too, as their reference.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/loop/cell_drift.hpp"
#include "sim/replay/replay.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::sim {

/// What a cell is fed after the prompt.
enum class LoopMode {
  teacher,  ///< the reference's tokens: the given answer, or what the full cache generates
  greedy,   ///< what the cell itself finds most probable
  draft,    ///< the cell drafts, and the full cache verifies; the only mode of its request
};
const char* loop_mode_name(LoopMode mode);

/// How several questions about one context follow each other.
enum class TurnProtocol {
  requests,  ///< each is asked right after the cut: questions and answers leave no trace
  golden,    ///< each follows the earlier questions with their expected answers
  own,       ///< each follows the earlier questions with what the cell answered itself; in teacher mode as
             ///< golden
};
const char* turn_protocol_name(TurnProtocol protocol);

/// The rotary positions of cached keys. With nothing dropped all are the same.
enum class LoopPositions {
  text,        ///< those of the text
  cache_step,  ///< those in the cache, counted anew at every step (Xiao et al. 2024, "StreamingLLM", 3.2)
  cache_once,  ///< those in the cache after the cut; what follows counts on (Corallo & Papotti 2024, "FINCH")
};
const char* loop_positions_name(LoopPositions positions);

/// A question, and the answer that is expected.
struct LoopTurn {
  /// Token ids. That of the first turn is what the sequence has after the cut, and must be empty here.
  std::vector<std::int32_t> question{};
  /// What later turns follow, and what teacher mode feeds; empty: none is expected.
  std::vector<std::int32_t> answer{};
  /// Prompt positions that the answer depends on, ascending. Those of the first turn are what the sequence
  /// marks, and must be empty here.
  std::vector<policy::Position> evidence{};
};

struct ReferenceRun;

/// A prompt that was put together of documents (assembled_prompt.hpp) in place of the one that is read whole.
struct AssembledPrefill {
  const trace::Source* exact = nullptr;  ///< the prompt as it is read whole, which references attend
  std::string name;                      ///< Assembly::name
  double computed = 0;                   ///< AssembledPrompt::computed
  /// What references have answered to the same request about the same prompt, put together in another way;
  /// empty: they answer, and leave it here. Null: they answer.
  std::vector<ReferenceRun>* references = nullptr;
};

/// Another checkpoint of the same vocabulary, which drafts.
struct DraftModel {
  /// The prompt, as closed_loop() takes it, run by this model; or another that ends with the same tokens from
  /// the first fed one on.
  const trace::Sequence* sequence = nullptr;
  std::span<const std::int32_t> tokens{};
  const model::ModelConfig* config = nullptr;
  const model::Weights* weights = nullptr;
};

struct LoopRequest {
  std::vector<Cell> cells;
  std::vector<LoopMode> modes{LoopMode::teacher, LoopMode::greedy};
  std::vector<LoopTurn> turns{LoopTurn{}};  ///< at least one
  TurnProtocol protocol = TurnProtocol::requests;
  /// Teacher mode feeds the expected answer, where there is one; else what the full cache generates.
  bool force_answer = true;
  LoopPositions positions = LoopPositions::text;
  /// Prompt tokens after which each cell ranks what it holds and evicts down to its budget; 0: it does so
  /// once, when the whole prompt has been processed with full attention.
  std::uint64_t prefill_tokens = 0;
  /// The sequence's prompt is an assembled one; none: it is what the model makes of it whole.
  std::optional<AssembledPrefill> assembled{};
  /// Lets allocations measure the prompt in a pass of its own where the cells process it themselves.
  bool profile_dense = false;
  std::uint64_t max_new_tokens = 8;  ///< per turn
  std::uint64_t gamma = 4;           ///< tokens that are drafted for each verification
  double temperature = 0;            ///< of drafts and verification; 0: greedy
  /// Draft mode: the cells are caches of this model; none: of the one that verifies. Logits of padding that
  /// only one of both has are left out.
  std::optional<DraftModel> drafter{};
  /// Draft mode at a temperature: the drafter leads, by so much (led_by()); 0: what comes out is the full
  /// cache's.
  double lead = 0;
  /// Draft mode: a model that drafts for the cells, one token at a time, through a cache of its own; what
  /// they accept, and a token of theirs behind it, is what they draft for the full cache (Sun et al. 2024,
  /// "TriForce", algorithm 1). Not together with `drafter`.
  std::optional<DraftModel> helper{};
  std::optional<Cell> helper_cell{};
  std::vector<std::int32_t> eos;  ///< an answer ends after one of these
  Elem elem = Elem::f32;          ///< of the cache, as the prompt was run with
  std::uint64_t seed = 0;
  unsigned threads = 0;    ///< 0: as many as the machine has. Never changes a result.
  bool decisions = false;  ///< record when each position is resident
  const policy::Tables* tables = nullptr;
  /// trace::TokenFlag bits of a token that the sequence does not have; null: none is known.
  std::function<std::uint32_t(std::int32_t id)> token_flags;

  bool drafts() const { return modes.front() == LoopMode::draft; }
  /// Tokens behind the answer that drafts may reach.
  std::uint64_t drafted_beyond() const { return drafts() ? gamma + (helper_cell ? 1 : 0) : 0; }
};

/// What a token's queries read in all lanes together, where a selection chooses.
struct StepReads {
  double read_tokens = 0;           ///< sum over lanes of the mean over its query heads
  std::uint64_t loaded_tokens = 0;  ///< sum over lanes of what its query heads read together
  std::uint64_t index_bits_read = 0, index_bits = 0;  ///< read to choose, and taken by the index
};

/// A drafted token that was put to the test.
struct DraftedToken {
  std::int32_t token = 0;
  /// Sum of min(p, q) over the vocabulary, p of the full cache and q of the draft, at the temperature; at 1
  /// where decoding is greedy.
  double overlap = 0;
  bool accepted = false;
};

/// What one verification has made of the drafted tokens.
struct DraftRound {
  /// Up to the first that was rejected or ended the answer.
  std::vector<DraftedToken> tested{};
  /// What a helper has proposed to the cell; each is one pass of the cell over two tokens.
  std::vector<DraftedToken> helped{};
  /// That follow from it: the accepted ones, and one of the full cache's unless the answer has ended. The
  /// last round may have more than the answer takes.
  std::uint64_t tokens = 0;
};

/// One turn of one cell in one mode, or of the reference.
struct StreamOutcome {
  std::vector<std::int32_t> tokens{};     ///< the answer: fed in teacher mode, generated in greedy mode
  std::vector<TokenMeasures> measures{};  ///< per token; teacher mode, and not of the reference
  std::vector<double> margins{};          ///< per token; of the reference alone
  std::vector<LayerDrift> drift{};        ///< per layer; teacher mode, and not of the reference
  std::vector<DraftRound> rounds{};       ///< draft mode, and not of the reference
  /// Per fed token, in draft mode per token that drafting has fed: positions held in all lanes together.
  std::vector<std::uint64_t> resident{};
  std::vector<std::uint64_t> full_resident{};  ///< draft mode: what the full cache would hold in its place
  /// Of the reference: tokens of all lanes up to the first fed one, windows or not; 0: as it holds.
  std::uint64_t seen = 0;
  std::uint64_t left_behind = 0;  ///< by the windows of layers since the cut, in all lanes together
  /// Per fed token: bits that a representation takes in all lanes together; empty without one.
  std::vector<std::uint64_t> stored_bits{};
  std::vector<StepReads> reads{};  ///< per fed token; empty without a selection
  /// Per lane, layer-major, by position then first step; only with LoopRequest::decisions, and not of the
  /// reference.
  std::vector<std::vector<ResidentInterval>> resident_intervals{};
  double held_tokens = 0;                                 ///< at the end, mean over lanes
  std::optional<double> evidence_held, evidence_nowhere;  ///< as in replay, at the end
};

/// What a reference predicted a token from.
struct Predicted {
  std::vector<float> queries{}, hidden{};  ///< [layers, heads, head_dim], [layers, hidden_size]
  std::vector<float> logits{};             ///< [vocabulary]
};

/// What a reference has answered.
struct ReferenceRun {
  std::vector<std::int32_t> text{};              ///< from the first fed token on
  std::vector<StreamOutcome> turns{};            ///< of its script
  std::map<std::size_t, Predicted> predicted{};  ///< by the tokens of the text before it; teacher mode
};

/// How the prompt reaches a cell's cache.
enum class Prefill {
  dense,    ///< once for all, with full attention, and is then ranked and cut
  stream,   ///< token by token
  chunked,  ///< LoopRequest::prefill_tokens at a time
};
const char* prefill_name(Prefill prefill);

struct LoopCell {
  std::string skipped;  ///< why the cell was not run; empty: it was
  Prefill prefill = Prefill::dense;
  bool profiled = false;            ///< its allocation measured a dense pass besides
  std::uint64_t budget_tokens = 0;  ///< mean per lane, as asked
  double kept_tokens = 0;           ///< after the cut, mean over lanes
  /// Per lane, layer-major: the most positions held at once while the prompt came in chunks, at most the
  /// lane's budget and LoopRequest::prefill_tokens; empty: it did not.
  std::vector<std::size_t> chunk_peaks{};
  std::vector<std::string> idle{};  ///< parts that changed nothing, in words (sim/replay/idle_parts.hpp)
  std::uint64_t kept_bits = 0;  ///< after the cut, in all lanes: what a representation takes; 0 without one
  std::size_t first_reference = 0;   ///< LoopOutcome::references[first_reference + mode] is its reference
  std::vector<StreamOutcome> modes;  ///< as requested; empty when skipped
};

/// One turn.
struct LoopOutcome {
  std::uint64_t prompt = 0;  ///< tokens before the cut
  std::uint64_t fed = 0;     ///< question tokens after it, or 1: the last prompt token, asked again
  std::string cut;
  std::vector<StreamOutcome> references;  ///< the full cache, per mode; then with a prefill of its own
  std::vector<LoopCell> cells;            ///< as requested
};

/// `sequence`: the prompt, run already, at a cut, without decode steps; its queries are all there. `tokens`:
/// its ids. Returns an outcome per turn. A policy that needs what a running model does not have is skipped
/// with the reason: oracles, and those that read rows of the full run (feedback=raw). Throws Error(usage) and
/// Error(input) as replay() does, and when logits are not finite; Error(usage) when several turns are asked
/// where the prompt holds the first question (only golden and own can follow it), or when a turn that others
/// follow has no answer.
std::vector<LoopOutcome> closed_loop(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
                                     const model::ModelConfig& config, const model::Weights& weights,
                                     const LoopRequest& request, Progress& progress);

/// Bytes that closed_loop() holds at once besides the prompt's trace and what policies hold.
std::uint64_t estimate_loop_bytes(const trace::Sequence& sequence, const model::ModelConfig& config,
                                  const LoopRequest& request);

}  // namespace kvsim::sim
