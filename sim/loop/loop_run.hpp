#pragma once
/// One run of the closed loop: its cells and streams, the prompt, the steps of the answers, what came of
/// them. closed_loop.hpp is the door.
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/workers.hpp"
#include "sim/loop/chunked_prompt.hpp"
#include "sim/loop/closed_loop.hpp"
#include "sim/loop/key_shifts.hpp"
#include "sim/loop/loop_plan.hpp"
#include "sim/loop/loop_unit.hpp"
#include "sim/loop/slot_rows.hpp"
#include "sim/loop/stream.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

using model::cpu::StepTensors;
using policy::Position;

/// What streams are fed first: the tokens from the first measured one on.
std::span<const std::int32_t> fed_at_first(const trace::Sequence& sequence,
                                           std::span<const std::int32_t> tokens);

class LoopRun {
 public:
  LoopRun(const trace::Sequence& sequence, std::span<const std::int32_t> tokens,
          const model::ModelConfig& config, const model::Weights& weights, const LoopRequest& asked,
          Progress& progress, LoopRun* verifier = nullptr);
  std::vector<LoopOutcome> run();
  /// Another model's one cell drafts for each of these, which draft for the full cache.
  void help_with(LoopRun& helper) { helper_ = &helper; }

 private:
  struct Layer {
    std::unique_ptr<GroupTensors> tensors;
    std::vector<ReplayUnit> shared;  // by policies that begin with the prompt of the sequence
    std::unique_ptr<RepresentedUnits> represented;
    std::unique_ptr<SelectedUnits> selected;
    std::vector<LoopUnit> units;  // all of them
    std::vector<float> queries;   // [rows][n_heads][dim] of the present step, where layers choose for others
  };
  /// The prompt of one stream as it comes in chunks.
  struct ChunkedStream {
    std::size_t stream = 0;
    std::vector<ChunkedUnit> units;  // by layer, then lane
    std::size_t per_layer = 1;
  };
  static bool processes_prompt(const Stream& stream) { return stream.prefill != Prefill::dense; }
  std::uint64_t step_work() const { return std::uint64_t{config_.n_layers} * config_.n_heads; }
  std::uint64_t answer_work() const { return (length_ - first_fed_ - 1) * step_work(); }
  std::uint64_t prompt_work() const;
  std::uint64_t own_prompt_work() const;
  /// Whether the prompt's last token is fed once more.
  bool asks_again() const { return first_fed_ < prompt_; }
  bool is_again(std::size_t position) const { return !in_prompt_ && position < prompt_; }
  double lanes() const { return static_cast<double>(config_.n_layers) * config_.n_kv_heads; }

  // Before the answers: cells, streams, caches.
  /// Cells, and what each lane may hold.
  void plan_cells();
  void choose_cells();

  Prefill prefill_of(std::size_t cell) const { return loop_plan_.cells[cell_of_request_[cell]].prefill; }
  LoopCell& outcome_of(std::size_t cell) { return first_.cells[cell_of_request_[cell]]; }
  void make_streams();
  /// The reference of a script, and its cells.
  void add_streams(LoopMode mode, const Script& script, Prefill prefill);
  /// Of a reference `reference` is its own number. Returns the stream's.
  std::size_t add_stream(LoopMode mode, const Script& script, Prefill prefill, bool is_reference,
                         std::size_t cell, std::size_t reference);
  /// The rows of the prompt as it is read whole.
  void take_exact(std::uint32_t layer, OwnRows& own) const;
  /// The first of the streams that process the prompt as this one, the latest, does.
  std::size_t leader_of(const Stream& stream) const;
  template <class Visit>
  void for_each_stream_of(const EvictionGroup& eviction_group, Visit visit) const {
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      const Stream& s = streams_[stream];
      const std::vector<std::size_t>& cells = eviction_group.cells;
      if (!s.is_reference && std::find(cells.begin(), cells.end(), s.cell) != cells.end()) visit(stream);
    }
  }
  /// Keys and values of the prompt in every layer.
  void read_prompt();
  /// A cache of a stream begins, as the prompt leaves it.
  void start_cache(std::size_t layer, ReplayUnit& unit, std::size_t stream);
  /// Every layer's policies observe the prompt, and every stream's caches begin, but for those that take the
  /// prompt in chunks.
  void begin_caches();

  // Prompts that cells process themselves.
  void process_prompts();
  void note_chunk_peaks();
  void forget_ended();
  void begin_chunks();
  /// `end`: tokens of the prompt that have been processed.
  void cut_chunks(std::size_t end, bool last);
  /// The cut: what every cache holds now, and where its keys are from here on.
  void end_prompt();

  // One step of the answers.
  void begin_step();
  void add_to_step(std::size_t stream, std::span<const std::int32_t> tokens, std::size_t position);
  /// Feeds the token at a position to every stream that has not ended. Returns whether another follows.
  bool step(std::size_t position);
  /// What representations hold after the cut; where the last prompt token is fed again, with its new row.
  void note_stored();

  // Drafts (loop_drafts.cpp).
  /// What a cell has drafted since the latest verification.
  struct Draft {
    std::size_t target = 0, stream = 0;  ///< the verifier's stream and the cell's
    std::vector<std::int32_t> tokens{};
    std::vector<std::vector<float>> logits{};  ///< that the tokens were drawn from, of the verifier's ids
    std::uint64_t draws = 0;
    std::size_t processed = 0;  ///< tokens of the text, and of what is drafted, whose rows its cache takes
    bool bonus = false;  ///< the helper's latest token was accepted: the next is drawn without its help
  };
  bool drafts() const { return asked_.drafts(); }
  /// Whether the full caches that verify are another model's.
  bool drafts_apart() const { return verifier_ != this; }
  Stream& target_of(const Draft& draft) const { return verifier_->streams_[draft.target]; }
  /// The next of a draft's random numbers.
  double draw(Draft& draft) const;
  /// The caches of cells that draft hold what has been verified, and nothing of what was drafted: in rows of
  /// the full cache of the same model, else in their own of what they have processed.
  void return_to_verified();
  void draft();
  /// The caches process what is new to them, and what was drafted behind it. Returns the logits behind the
  /// last token of each, by the verifier's ids.
  std::vector<std::vector<float>> feed(std::span<Draft* const> drafting);
  /// Of the drafts among these that the helper proposes a token for; none without one.
  std::vector<std::vector<float>> logits_of_helper(std::span<Draft* const> drafting);
  std::int32_t chosen(Draft& draft, std::span<const float> logits) const;
  double soft_overlap(std::span<const float> p, std::span<const float> q) const;
  /// The helper's token, if the cell accepts it, or another.
  void take_helped(Draft& draft, std::span<const float> helped, std::span<const float> own);
  /// The full caches are fed what they have not been fed of the text, and what was drafted behind it. Returns
  /// whether an answer goes on.
  bool verify();
  /// `logits` [drafted + 1, vocabulary]: of the full cache, from the last token of the text on.
  void judge(Draft& draft, std::span<const float> logits);
  void require_finite(std::span<const float> logits, std::size_t position) const;

  /// Layers that are stored together have both processed the tokens of the step.
  void store_pairs();
  /// What the reference of a row's stream predicted the same token from.
  const Predicted& taught(std::size_t row) const {
    return streams_[streams_[active_[row]].reference].predicted.at(position_ + 1 - first_fed_);
  }
  void attend(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended);
  void keep_own(std::uint32_t layer, const StepTensors& tensors);
  /// Where one lane's keys and values of the text lie for a stream.
  struct LaneText {
    MatrixView keys, values;  ///< of the prompt
    const OwnRows& own;
    std::size_t lane, first_own, first_seen;
    SlotRow row(Position position) const;
  };
  LaneText lane_text(const Stream& stream, std::size_t layer, std::size_t lane,
                     std::size_t first_seen = 0) const;
  /// The same for a row's query.
  LaneText seen_text(std::uint32_t layer, std::size_t row, std::size_t lane) const;
  bool layers_choose_for_others() const {
    return std::any_of(plan_.selection_groups.begin(), plan_.selection_groups.end(),
                       [](const PartGroup& group) { return group.crosses; });
  }
  /// A layer of the present step, or block of steps, and where its attention goes.
  struct AtLayer {
    std::uint32_t layer;
    const StepTensors& tensors;
    std::span<float> attended;
  };
  /// What attending needs room for, one for each thread.
  struct Scratch {
    SlotRows rows;
    std::vector<SlotRow> slots, read;  // what a lane attends, and what a head reads of it
    std::vector<float> rotated;        // keys that have moved
    std::vector<float> weights;
    std::vector<double> mass;
    std::vector<Position> positions;
    std::vector<std::uint32_t> shifts;  // by how much keys are nearer than in the text; none: not at all
    std::vector<policy::LaneRows> lanes;
    std::vector<std::size_t> order, columns;  ///< of slots by position; what a head reads, so
    std::vector<SlotRow> ordered;
  };
  static Scratch& scratch();
  const KeyRotation& rotation_of(std::uint32_t layer) const {
    return *rotations_[sequence_.model().rotation_of(layer)];
  }
  /// Finds the slots of the scratch: what one lane of one row attends of its positions, which a codec stores.
  void stored_slots(std::uint32_t layer, std::size_t row, std::size_t first_lane, std::size_t lane,
                    const Cache& cache) const;
  /// The same of positions of the text, with the shifts of the scratch.
  void text_slots(std::uint32_t layer, std::size_t row, std::size_t lane,
                  std::span<const Position> positions) const;
  /// `n` query heads of one row, from `head` on, attend the slots.
  void attend_slots(const AtLayer& at, std::size_t row, std::size_t head, std::size_t n,
                    std::span<const SlotRow> slots) const;
  /// One lane of one row: its queries attend the positions of the text.
  void attend_lane(const AtLayer& at, std::size_t row, std::size_t lane,
                   std::span<const Position> positions) const;
  void attend_all(const AtLayer& at, std::size_t row) const;
  void attend_chunk(const AtLayer& at, const ChunkedStream& chunked) const;
  /// Finds the shifts of the scratch. `once`: of positions counted in the cache once, at the latest cut.
  /// Orders the slots of a cache by position in a layer with a window, whose slots are taken again: sums then
  /// add up as the full cache's do. No order: they are as they should be.
  void order_slots(std::uint32_t layer, std::span<const Position> positions) const;
  void find_shifts(std::span<const Position> positions, std::span<const std::uint32_t> once) const;
  void attend_unit(const AtLayer& at, LoopUnit& unit) const;
  void attend_cache(const AtLayer& at, LoopUnit& unit, std::size_t number, std::size_t row) const;
  /// The last prompt token has come again: what is kept is coded and indexed now, with its new row. Layers
  /// that are stored together begin as their prompts are (rejoin()).
  void begin_parts(std::uint32_t layer, const LoopUnit& unit, Cache& cache, const Token& token) const;
  /// Shows `use` what the cache holds, as its selector sees it.
  template <class Use>
  void with_tokens(std::uint32_t layer, const LoopUnit& unit, const Cache& cache, Use use) const;
  /// The layer that chooses for the unit's, if another does.
  std::optional<int> leader_of(std::uint32_t layer, const LoopUnit& unit, const Stream& stream) const;
  /// The cache's selector chooses what the queries of a row read.
  void choose(std::uint32_t layer, const LoopUnit& unit, Cache& cache, std::size_t row,
              const Token& token) const;
  std::uint8_t class_at(std::size_t position, std::int32_t id) const;
  static float surprise_of(const Stream& stream, std::size_t fed) {
    return fed < stream.surprises.size() ? stream.surprises[fed] : std::numeric_limits<float>::quiet_NaN();
  }
  /// Whether the policy of a cell's stream needs surprises.
  bool ranks_surprises(const Stream& stream) const {
    return !stream.is_reference && request_.cells[stream.cell].composition.eviction.needs().surprises;
  }
  template <class Visit>
  void for_each_cache(Visit visit) {
    for (Layer& layer : layers_)
      for (LoopUnit& unit : layer.units)
        for (Cache& cache : unit.caches()) visit(unit, cache);
  }
  void count_residents();
  /// Returns what the full cache holds of `n` tokens in all lanes together.
  std::uint64_t whole_tokens(std::size_t n) const;
  void add_reads(const LoopUnit& unit, const SelectedReads& reads, StreamOutcome& out) const;
  /// The tokens that follow the latest step, where they are not known.
  void predict();
  /// The next token of one stream. A reference comes before the streams that are compared with it.
  bool take(Stream& stream, std::span<const float> logits);
  /// Where references have answered a prompt, or leave their answers for its next form; null: nowhere.
  std::vector<ReferenceRun>* kept_references() const {
    return asked_.assembled ? asked_.assembled->references : nullptr;
  }
  void keep_references();
  void end_turn(std::size_t number);
  /// What a stream's caches hold when a turn ends.
  void note_caches(std::size_t number);
  bool holds_as_it_came(std::size_t layer, const LoopUnit& unit, const Cache& cache) const;
  /// What a representation and a selection have left as it was, when the first turn ends.
  void note_idle(Stream& stream, bool unchanged);
  std::vector<LoopOutcome> outcomes();
  /// Steps after which intervals that have ended are put away.
  static constexpr std::size_t kBlock = 32;
  static constexpr std::size_t kInactive = ~std::size_t{0};

  LoopRun* const verifier_;    // whose full caches verify drafts: itself, or another model's
  LoopRun* helper_ = nullptr;  // whose one cell drafts for the cells
  const trace::Sequence& sequence_;
  const std::span<const std::int32_t> tokens_;
  const model::ModelConfig& config_;
  const LoopRequest& asked_;
  Progress& progress_;
  Workers workers_;
  const LoopPlan loop_plan_;
  const std::size_t prompt_, first_fed_, length_;
  model::cpu::StepBatch batch_;
  std::vector<std::optional<KeyRotation>> rotations_;  // by number, if positions are not those of the text
  Request request_;                                    // the cells that a running model can serve
  std::vector<std::size_t> cell_of_request_;           // their numbers in what was asked
  Plan plan_;
  std::deque<Stream> streams_;  // a reference, then the cells that are compared with it
  std::size_t first_reference_of_own_ = 0;
  std::vector<ChunkedStream> chunked_;                    // while the prompt is processed
  std::vector<std::unique_ptr<RankedResidents>> ranked_;  // the units of streams whose prompt came in chunks
  std::vector<Layer> layers_;
  LoopOutcome first_;  // what all turns share
  std::vector<LoopOutcome> outcomes_;
  // Of the present step, or block of steps in prompts that cells process themselves.
  std::size_t position_ = 0, block_ = 1;  // its first position, and tokens of every stream
  bool in_prompt_ = false, refeeding_ = false;
  std::vector<model::cpu::StepBatch::Row> rows_;               // block_ of each stream
  std::vector<std::size_t> active_, row_of_stream_;            // streams by row, first rows by stream
  std::vector<std::size_t> teaching_, drifting_, predicting_;  // rows
  std::vector<Draft> drafts_;
  std::size_t draft_steps_ = 0;  // tokens of the slowest draft, for the progress
};

}  // namespace kvsim::sim
