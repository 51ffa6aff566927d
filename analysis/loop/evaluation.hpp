#pragma once
/// A checkpoint that answers prompts through compressed caches: what `kvsim evaluate` does, without printing.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/loop/answer_rows.hpp"
#include "analysis/loop/token_rows.hpp"
#include "sim/base/progress.hpp"
#include "sim/replay/decisions.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/format/cut.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::analysis {

struct EvaluationOptions {
  std::vector<sim::Cell> cells;
  std::vector<sim::LoopMode> modes{sim::LoopMode::teacher, sim::LoopMode::greedy};
  std::vector<trace::Cut> cuts{trace::Cut{}};
  std::uint64_t max_new_tokens = 8;
  bool force_answer = true;   ///< teacher mode is fed the first expected answer where there is one
  std::string elem = "auto";  ///< of the cache, as capture takes it
  std::uint64_t prefill_chunk = 512;
  std::uint64_t seed = 0;
  unsigned threads = 0;
  std::uint64_t memory_limit = 0;  ///< bytes; 0: none
  bool per_token = false;          ///< rows are those of tokens: token_columns()
  /// Is shown which positions were resident, cut by cut; null: nothing is recorded.
  std::function<void(const sim::Decisions&)> decisions{};
};

class Evaluation {
 public:
  /// Loads the checkpoint of a folder. Throws Error(input).
  explicit Evaluation(const std::string& model_dir);
  ~Evaluation();

  /// What the user should know of the checkpoint.
  const std::vector<std::string>& notes() const;

  /// Rows of one item (answer_columns() or token_columns()), by cut, cell and mode. A cut that the item does
  /// not have, or a prompt beyond the model's context, throws Error(usage) with the item's name; a loop above
  /// the memory limit, too.
  std::vector<std::vector<Value>> answer(const capture::WorkloadItem& item, const EvaluationOptions& options,
                                         Progress& progress);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::analysis
