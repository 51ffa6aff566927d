#pragma once
/// A checkpoint that answers prompts through compressed caches: what `kvsim evaluate` does, without printing.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "analysis/loop/part_rows.hpp"
#include "sim/base/progress.hpp"
#include "sim/loop/assembled_prompt.hpp"
#include "sim/replay/decisions.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/format/cut.hpp"
#include "traces/format/sequence.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::analysis {

/// What a row is of.
enum class AnswerScope {
  answer,
  token,
  layer,
  seam,  ///< of an assembled prompt, whatever the cells: how far it is from the one that is read whole
  draft,
  drafted_token
};

struct EvaluationOptions {
  std::vector<sim::Cell> cells;
  std::vector<sim::LoopMode> modes{sim::LoopMode::teacher, sim::LoopMode::greedy};
  std::vector<trace::Cut> cuts{trace::Cut{}};
  sim::TurnProtocol protocol = sim::TurnProtocol::requests;
  sim::LoopPositions positions = sim::LoopPositions::text;
  std::uint64_t prefill_tokens = 0;  ///< as LoopRequest::prefill_tokens
  bool profile_dense = false;        ///< as LoopRequest::profile_dense
  /// Ways in which prompts are put together of their documents; none: they are read whole. With them, rows of
  /// answers also have assembly_columns().
  std::vector<sim::Assembly> assemblies{};
  std::uint64_t max_new_tokens = 8;
  std::uint64_t gamma = 4;  ///< as LoopRequest::gamma
  double temperature = 0;   ///< as LoopRequest::temperature
  /// The cache of the checkpoint that drafts, which helps the cells then (LoopRequest::helper); none: the
  /// cells are its caches.
  std::optional<sim::Cell> helper_cell{};
  /// The checkpoint that drafts reads only so many documents of the prompt (retrieved_documents()); 0: all.
  std::uint64_t draft_documents = 0;
  double lead = 0;            ///< as LoopRequest::lead
  bool force_answer = true;   ///< teacher mode is fed the first expected answer where there is one
  std::string elem = "auto";  ///< of the cache, as capture takes it
  std::uint64_t prefill_chunk = 512;
  std::uint64_t seed = 0;
  unsigned threads = 0;
  std::uint64_t memory_limit = 0;  ///< bytes; 0: none
  AnswerScope scope = AnswerScope::answer;
  /// Rows of answers also have loss_columns(): what a replay of the full cache's run on the same tokens says.
  /// Only where a replay knows the protocol: requests, a dense prefill, positions of the text.
  bool losses = false;
  /// Is shown which positions were resident, cut by cut; null: nothing is recorded.
  std::function<void(const sim::Decisions&)> decisions{};
};

/// The modes that `both`, `teacher` or `greedy` means. Throws Error(usage) at `where` for another word.
std::vector<sim::LoopMode> parse_loop_modes(const std::string& mode, const std::string& where);

/// What makes the rows of one item at one cut: answer_rows(), token_rows(), layer_rows(), draft_rows() or
/// drafted_token_rows(); null for seams, which nobody answers at.
using RowMaker = std::vector<std::vector<Value>> (*)(const AnswerItem&, const sim::LoopRequest&,
                                                     const sim::LoopOutcome&);
RowMaker row_maker(AnswerScope scope);

/// The item's own rule, which refers to the item; none where no answer is right or wrong.
std::function<bool(const std::string&)> right_answer(const capture::WorkloadItem& item);

/// The columns of the rows that these options ask for.
std::vector<ColumnInfo> columns_of(const EvaluationOptions& options);

/// Tokens to generate where nobody says how many: what the longest expected answer takes (all answers where
/// all are expected), 32 more where it may stand within a sentence; at least 8.
std::uint64_t tokens_to_generate(std::span<const capture::WorkloadItem> items,
                                 const model::Tokenizer& tokenizer);
/// What to tell where some items cannot be answered right with `tokens`; empty: nothing.
std::string cut_short_note(std::span<const capture::WorkloadItem> items, const model::Tokenizer& tokenizer,
                           std::uint64_t tokens);

struct PromptSize {
  std::uint64_t tokens = 0;
  std::uint64_t bytes = 0;  ///< that the full cache takes
};

class Evaluation {
 public:
  /// Loads the checkpoint of a folder. Throws Error(input).
  explicit Evaluation(const std::string& model_dir);
  ~Evaluation();

  /// Lets the checkpoint of another folder draft in draft mode. Throws Error(input), also where a token of
  /// one is not that of the other.
  void draft_with(const std::string& model_dir);

  /// What the user should know of the checkpoints.
  std::vector<std::string> notes() const;

  const model::Tokenizer& tokenizer() const;

  /// The prompts and answers of a recorded run of this model (recorded_items()).
  std::vector<capture::WorkloadItem> recorded(const trace::Sequence& sequence, const std::string& name) const;

  /// Rows of items about one context (context_turns.hpp), columns_of(options), by item, cut, cell and mode. A
  /// cut that an item does not have, or a prompt beyond the model's context, throws Error(usage) with the
  /// item's name; a loop above the memory limit, too.
  std::vector<std::vector<Value>> answer(std::span<const capture::WorkloadItem> items,
                                         const EvaluationOptions& options, Progress& progress);

  /// A row of loss_columns() per cell: what a replay at the first cut says of the full cache's run on the
  /// item's prompt and first expected answer. Nobody answers. Throws as answer() does, and Error(usage) where
  /// no answer is expected.
  std::vector<std::vector<Value>> losses(const capture::WorkloadItem& item, const EvaluationOptions& options,
                                         Progress& progress) const;

  /// Of the item's prompt as far as the first cut.
  PromptSize prompt_size(const capture::WorkloadItem& item, const EvaluationOptions& options) const;
  /// Of each cell, whether its budget has room for every token as far as the first cut.
  std::vector<bool> room_for_all(const capture::WorkloadItem& item, const EvaluationOptions& options) const;

  /// Bytes that answering these items takes at once, estimated from their texts. Throws as answer() does.
  std::uint64_t estimate_bytes(std::span<const capture::WorkloadItem> items,
                               const EvaluationOptions& options) const;
  /// The most of any answered so far, the one refused for its memory included.
  std::uint64_t most_bytes() const { return most_bytes_; }

  struct Loaded;

 private:
  std::unique_ptr<const Loaded> loaded_, drafter_;
  std::uint64_t most_bytes_ = 0;
};

}  // namespace kvsim::analysis
