// Holds at each step what another run held, as its decisions file says.
#include <cstdio>
#include <memory>

#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/external_table.hpp"

namespace kvsim::policy::external_schedule {
namespace {

constexpr int kMostCells = 10000;  // as the file numbers them, in four digits

std::string dataset_of(std::uint64_t cell) {
  char name[32];
  std::snprintf(name, sizeof name, "cells/%04u/last_step", static_cast<unsigned>(cell));
  return name;
}

/// The table has, per position, the first step at which it is held no longer; 0: it is not kept of the
/// prompt. Step s is that of the token at position prompt - 1 + s.
class ExternalScheduleDecoder final : public Decoder {
 public:
  ExternalScheduleDecoder(std::shared_ptr<const ExternalTable> table, std::size_t prompt)
      : table_(std::move(table)), prompt_(prompt) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    const auto position = static_cast<std::size_t>(arrival.position);
    if (position >= table_->positions())
      table_->refuse("covers " + std::to_string(table_->positions()) + " positions, the run has more",
                     "Record as many tokens as are fed here.");
    const auto step = static_cast<double>(position + 1 - prompt_);
    for (std::size_t slot = 0; slot < arrival.slots.size(); ++slot)
      if ((*table_)(static_cast<std::size_t>(arrival.slots[slot])) <= step) victims.push_back(slot);
  }

 private:
  std::shared_ptr<const ExternalTable> table_;
  std::size_t prompt_;
};

class ExternalSchedule final : public Eviction {
 public:
  ExternalSchedule(const Params& params, const CacheUnit& unit)
      : table_(std::make_shared<ExternalTable>(params.word("file"), dataset_of(params.count("cell")), unit)) {
  }

  void finish_prompt(const Prompt& prompt) override {
    first_ = prompt.first();
    prompt_ = first_ + prompt.length();
    table_->read(prompt_);
  }

  Start start(std::size_t /*budget*/) const override {
    Start out;
    out.keep = table_->marked(first_, prompt_);
    out.decoder = std::make_unique<ExternalScheduleDecoder>(table_, prompt_);
    return out;
  }

 private:
  std::shared_ptr<ExternalTable> table_;
  std::size_t first_ = 0, prompt_ = 0;  ///< positions: of the first row, and behind the last
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "external_schedule",
      .summary = "holds at each step what a decisions file says, whatever the budget: an oracle's schedule",
      .details =
          "Another run's decisions (kvsim replay --decisions, kvsim evaluate --decisions) say from when to "
          "when every lane held every token; the same tokens are held again. With it a running model can "
          "follow what an oracle chose that knew the recorded run's future. The prompt must be as long as "
          "the other run's, its cut the same, and the tokens that follow are taken to be the same ones.",
      .params = {required_param("file", "decisions file of the other run"),
                 {.name = "cell",
                  .fallback = "0",
                  .max = kMostCells - 1,
                  .help = "which of its cells, as the rows of that run are numbered from 0"}},
      .cost = cost_of_marked,
      .rule = EvictionRule{.own_budget = true, .make = made<ExternalSchedule>}};
}

}  // namespace kvsim::policy::external_schedule
