#pragma once
/// What a policy says about itself, once: help, validation, documentation and test sweeps are generated from
/// it.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/calibrator.hpp"
#include "policies/api/cost.hpp"
#include "policies/api/eviction.hpp"
#include "policies/api/holding_class.hpp"
#include "policies/api/oracle.hpp"
#include "policies/api/representation.hpp"
#include "policies/api/selection.hpp"
#include "sim/base/params.hpp"

namespace kvsim::policy {

struct Part;
// policies/api/replacement.hpp
class Replacement;
struct BlockSpace;

/// The values of a policy's parameters. Those of ParamType::policy are policies with values of their own.
class Params : public ParamValues {
 public:
  /// Throws Error(bug) for a name that is not declared as a policy.
  const Part& part(std::string_view name) const;

  std::map<std::string, std::shared_ptr<const Part>, std::less<>> parts{};
};

/// What it needs from a trace, for `policy show` and for refusing traces that lack it.
enum class RowNeed { none, window, all };
struct Needs {
  RowNeed prompt_rows = RowNeed::none;
  bool decode_rows =
      false;  ///< Step::attention; of a representation Codec::observe(); of a selection nothing
  bool keys = false, values = false;
  bool queries = false;         ///< Prompt::queries, rotary, scale; Arrival::queries: all of them
  bool classes = false;         ///< Prompt::classes, Arrival::token_class
  bool output_weights = false;  ///< Prompt::output_weights
};
/// What satisfies both.
Needs merged(const Needs& a, const Needs& b);

enum class Kind { eviction, allocation, representation, selection, replacement };
/// Those that may stand after an eviction.
inline constexpr Kind kPartKinds[] = {Kind::allocation, Kind::representation, Kind::selection};
/// "eviction", ...
std::string_view kind_name(Kind kind);
/// "an eviction", ...
std::string a_kind(Kind kind);

/// Where paper and code, or two codes, or they and this policy, do not agree.
struct Departure {
  std::string theirs{};  ///< what is written or released, and by whom
  std::string ours{};    ///< what this policy does, or which parameters do the other
};

struct PolicySpec {
  std::string name{};
  std::vector<std::string> aliases{};
  Kind kind = Kind::eviction;
  std::string summary{};  ///< one line
  std::string paper{};    ///< authors, title, venue, year, link; empty for baselines
  std::string details{};  ///< the rule in a few sentences
  std::vector<Departure> departures{};
  std::vector<ParamSpec> params{};
  Needs needs{};
  /// When needs depend on parameters; null: `needs`.
  std::function<Needs(const Params&)> needs_of{};
  bool randomised = false;
  /// Decides itself how much it keeps: the feeder gives it the whole sequence as budget, whatever the study
  /// asks (eviction).
  bool own_budget = false;
  /// Ranks by a score that others may read: Eviction::scores, Decoder::scores (eviction).
  bool scored = false;
  /// Splits by AllocationRequest::scores: only evictions that are `scored` go with it (allocation).
  bool uses_scores = false;
  /// Splits by AllocationRequest::losses instead where the eviction is an oracle that has them (allocation).
  bool uses_losses = false;
  /// Answers Oracle::losses()? (oracle) null: never.
  std::function<bool(const Params&)> loss_curve{};
  /// Only appends generated tokens? (oracle; of other evictions their cost says so) null: never.
  std::function<bool(const Params&)> appends{};

  /// Lanes share one resident set (eviction), are stored together (representation), or are read together
  /// (selection)? Decided by parameters, hence a function; null: never.
  std::function<bool(const Params&)> layer_unit{};
  /// Keeps the same tokens whether lanes share one set or not (eviction).
  bool any_unit = false;
  /// May give out another total than asked? (allocation) null: never.
  std::function<bool(const Params&)> inexact{};
  /// Is the total what the rule comes to, so that it is asked even where the budget holds every prompt?
  /// (allocation) Such a rule is inexact. null: never.
  std::function<bool(const Params&)> own_total{};
  /// The least budget the policy honours: sinks + window, and room for the token being computed. null: 1.
  std::function<std::size_t(const Params&)> floor{};
  /// Tokens beyond the budget that a query may attend, when a token attends before another leaves; null: 0.
  std::function<std::size_t(const Params&)> overshoot{};
  /// What the rule costs beside exact attention over what is stored. null: nothing (a full cache, a split by
  /// position).
  std::function<Cost(const Params&, const CostShape&)> cost{};
  /// Throws Error(usage) for combinations of parameters that single ranges cannot exclude. May be null.
  std::function<void(const Params&)> check{};
  /// What the rows take after `kept` tokens of a prompt and `appended` ones, none of which has been evicted
  /// since (representation).
  std::function<Ledger(const Params&, const StorageShape&, std::uint64_t kept, std::uint64_t appended)>
      ledger{};
  /// Whether that differs from layer to layer (representation).
  bool by_depth = false;
  /// What the queries of a layer read while every lane holds `stored` tokens, and what the index is
  /// (selection).
  std::function<ReadCount(const Params&, const CostShape&, std::size_t layer, std::size_t stored)> reads{};
  /// What measures the tables of a layer on other runs; `layer`: a unit of all its lanes (representation,
  /// selection). null: it needs none.
  std::function<std::unique_ptr<Calibrator>(const Params&, const CacheUnit& layer)> make_calibrator{};
  /// Its name and those of its parameters that the tables depend on; where there is a calibrator.
  std::function<std::string(const Params&)> calibration_maker{};
  // Exactly one of the six; the first two are Kind::eviction.
  std::function<std::unique_ptr<Eviction>(const Params&, const CacheUnit&)> make_eviction{};
  std::function<std::unique_ptr<Oracle>(const Params&, const CacheUnit&)> make_oracle{};
  std::function<std::unique_ptr<Allocation>(const Params&)> make_allocation{};
  /// Throws Error(usage) where the shape of the unit does not suit the parameters.
  std::function<std::unique_ptr<Representation>(const Params&, const CacheUnit&)> make_representation{};
  /// Throws Error(usage) as make_representation.
  std::function<std::unique_ptr<Selection>(const Params&, const CacheUnit&)> make_selection{};
  std::function<std::unique_ptr<Replacement>(const Params&, const BlockSpace&)> make_replacement{};
  /// The same where BlockSpace::nodes. Throws Error(usage) for parameters that rank single blocks. null: the
  /// rule has no meaning for nodes.
  std::function<std::unique_ptr<Replacement>(const Params&, const BlockSpace&)> make_node_replacement{};
};

/// A policy with a value for every parameter.
struct Part {
  const PolicySpec* spec = nullptr;
  Params params;

  std::string text() const;  ///< "h2o(recent=0.5,...)": every effective value
  bool layer_unit() const { return spec->layer_unit && spec->layer_unit(params); }
  Needs needs() const { return spec->needs_of ? spec->needs_of(params) : spec->needs; }
  bool inexact() const { return spec->inexact && spec->inexact(params); }
  bool own_total() const { return spec->own_total && spec->own_total(params); }
  std::size_t floor() const;  ///< least budget per lane, at least 1
  std::size_t overshoot() const { return spec->overshoot ? spec->overshoot(params) : 0; }
  Cost cost(const CostShape& shape) const { return spec->cost ? spec->cost(params, shape) : Cost{}; }
  bool has_loss_curve() const { return spec->loss_curve && spec->loss_curve(params); }
  /// What an eviction holds with these parameters, in lanes that it may evict from at all; none if it decides
  /// by itself how much it keeps.
  std::optional<Holding> holding() const;
  std::unique_ptr<Eviction> make_eviction(const CacheUnit& unit) const {
    return spec->make_eviction(params, unit);
  }
  std::unique_ptr<Allocation> make_allocation() const { return spec->make_allocation(params); }
  std::unique_ptr<Representation> make_representation(const CacheUnit& unit) const {
    return spec->make_representation(params, unit);
  }
  std::unique_ptr<Selection> make_selection(const CacheUnit& unit) const {
    return spec->make_selection(params, unit);
  }
  ReadCount reads(const CostShape& shape, std::size_t layer, std::size_t stored) const {
    return spec->reads(params, shape, layer, stored);
  }
  Ledger ledger(const StorageShape& shape, std::uint64_t kept, std::uint64_t appended) const {
    return spec->ledger(params, shape, kept, appended);
  }
  /// Of one such unit in every layer, added up; of `shape` the layer does not matter.
  Ledger ledger_of_layers(StorageShape shape, std::uint64_t kept, std::uint64_t appended) const;
  /// Eviction::protection of a prompt so long, under any budget; an oracle protects nothing.
  std::function<Protection(std::size_t budget)> protection(std::size_t prompt) const;
};

/// Every parameter has a default.
bool complete(const PolicySpec& spec);

/// A published system under its own name: text that expands to a composition.
struct PresetSpec {
  std::string name, expansion, summary, paper;
};

}  // namespace kvsim::policy
