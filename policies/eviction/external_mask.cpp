// Keeps or evicts each token as a mask from a file says.
#include <memory>

#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/external_table.hpp"

namespace kvsim::policy::external_mask {
namespace {

/// A generated token attends itself, and is evicted before the next token attends if the mask says so.
class ExternalMaskDecoder final : public Decoder {
 public:
  explicit ExternalMaskDecoder(std::shared_ptr<const ExternalTable> table) : table_(std::move(table)) {}

  void evict(const Arrival& /*arrival*/, std::vector<std::size_t>& victims) override {
    if (newest_leaves_) victims.push_back(newest_slot_);
  }
  void observe(const Step& step) override {
    newest_leaves_ = (*table_)(static_cast<std::size_t>(step.position)) == 0;
    newest_slot_ = step.own_slot;
  }

 private:
  std::shared_ptr<const ExternalTable> table_;
  bool newest_leaves_ = false;
  std::size_t newest_slot_ = 0;
};

class ExternalMask final : public Eviction {
 public:
  ExternalMask(const Params& params, const CacheUnit& unit)
      : table_(std::make_shared<ExternalTable>(params, unit)) {}

  void finish_prompt(const Prompt& prompt) override {
    first_ = prompt.first();
    prompt_ = first_ + prompt.length();
    table_->read(prompt_);
    for (std::size_t position = 0; position < table_->positions(); ++position)
      if (const double keep = (*table_)(position); keep != 0 && keep != 1)
        table_->refuse("position " + std::to_string(position) + " is neither 0 nor 1",
                       "Scores go with external_scores.");
  }

  Start start(std::size_t /*budget*/) const override {
    Start out;
    out.keep = table_->marked(first_, prompt_);
    if (table_->positions() > prompt_) out.decoder = std::make_unique<ExternalMaskDecoder>(table_);
    return out;
  }

 private:
  std::shared_ptr<ExternalTable> table_;
  std::size_t first_ = 0, prompt_ = 0;  ///< positions: of the first row, and behind the last
};

}  // namespace

PolicySpec spec() {
  return {.name = "external_mask",
          .summary = "keeps the tokens that a file marks, whatever the budget: learned flags, or any others",
          .details =
              "A file holds 1 (keep) or 0 (drop) per layer, KV head and position, decided once: what a "
              "trained gate such as Attention-Gate's computes. The prompt's flags apply when it ends. If "
              "the file covers generated tokens too, one with flag 0 is attended by itself alone and gone "
              "before the next one attends; if not, they are appended.",
          .params = external_table_params("mask"),
          .cost = cost_of_marked,
          .rule = EvictionRule{.own_budget = true, .make = made<ExternalMask>}};
}

}  // namespace kvsim::policy::external_mask
