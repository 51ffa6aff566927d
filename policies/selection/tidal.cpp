// TidalDecode: a few layers choose the tokens for the layers behind them.
#include "policies/parts/index/reading.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::tidal {
namespace {

struct Rule {
  Amount read;
  std::size_t first = 2;       ///< layer that chooses first; those before it read everything
  std::size_t correction = 0;  ///< layer that chooses anew; 0: none does

  static Rule of(const Params& params) {
    return {params.amount("read"), params.count("dense"), params.count("correction")};
  }
  bool reads_everything(std::size_t layer) const { return layer <= first || layer == correction; }
  std::size_t leader(std::size_t layer) const {
    return correction > 0 && layer > correction ? correction : first;
  }
};

/// Sees keys and queries of the layer that chooses, whose logits are exact.
class TidalSelector final : public UnitSelector {
 public:
  TidalSelector(const Rule& rule, const CacheUnit& unit) : UnitSelector(unit), rule_(rule) {}

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    for (std::size_t head = 0; head < reads.heads(); ++head) {
      exact_scores(asking, head, tokens, head / group_, scores_);
      highest_scores(scores_, rule_.read.of(tokens.slots()), reads.of(head));
    }
  }

 private:
  Rule rule_;
  std::vector<float> scores_;
};

class TidalSelection final : public Selection {
 public:
  TidalSelection(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}

  std::optional<int> leader() const override {
    return static_cast<int>(rule_.leader(static_cast<std::size_t>(unit_.layer)));
  }
  std::unique_ptr<Selector> selector() const override {
    return std::make_unique<TidalSelector>(rule_, unit_);
  }

 private:
  Rule rule_;
  CacheUnit unit_;
};

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t layer, std::size_t stored) {
  const Rule rule = Rule::of(params);
  if (rule.reads_everything(layer)) return dense_reads(stored);
  return chosen_reads(shape, stored, static_cast<double>(rule.read.of(stored)));
}

void check(const Params& params) {
  const Rule rule = Rule::of(params);
  if (rule.correction > 0 && rule.correction <= rule.first)
    usage_error("layer " + std::to_string(rule.correction) + " cannot correct what layer " +
                    std::to_string(rule.first) + " chooses first",
                "tidal(" + params.text() + ")", "Choose a later layer, or correction=0 for none.");
}

std::unique_ptr<Selection> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  if (rule.reads_everything(static_cast<std::size_t>(unit.layer))) return std::make_unique<DenseSelection>();
  return std::make_unique<TidalSelection>(rule, unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "tidal",
      .summary = "two layers choose the tokens of the highest logits, and the layers behind them read these",
      .paper = "Yang, Zhang, Chen, Li, Jia, TidalDecode, ICLR 2025, arXiv 2410.05076",
      .details =
          "Layers 0 and 1 read everything. So do layer 2 and the correction layer, and each of their query "
          "heads passes on the `read` tokens of its highest logits. The query head of the same number in "
          "every layer behind reads these, up to the next layer that chooses. There is no index; the list "
          "of tokens that is passed on is not counted.",
      .departures = {{"authors' scripts: the correction layer is 13 for Llama 3 8B, 12 for Llama 2 7B, 9 "
                      "elsewhere",
                      "13 unless correction= says otherwise; a model with fewer layers has none"},
                     {"authors' scripts: 128 to 4096 tokens", "256, their demonstration's"}},
      .params = {read_param("256"),
                 count_param("correction", "13", {0, 4096},
                             "layer, counted from 0, that chooses anew; 0: none does", "layer"),
                 dense_param(2)},
      .needs = {.keys = true},
      .check = check,
      .rule = SelectionRule{.reads = reads_of, .make = make}};
}

}  // namespace kvsim::policy::tidal
