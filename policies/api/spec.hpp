#pragma once
/// What a policy says about itself, once: help, validation, documentation and test sweeps are generated from
/// it.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/cost.hpp"
#include "policies/api/eviction.hpp"
#include "policies/api/oracle.hpp"
#include "policies/api/representation.hpp"
#include "policies/api/selection.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/params.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

// Defines what a policy learns of other runs before it is used on one. A Calibrator
// measures one layer; its tables go into a file, which a parameter of the policy names (Tables::calibrated).

/// One layer of one run: prompt and generated tokens.
struct LayerTokens {
  std::vector<MatrixView> keys{},
      values{};                       ///< per KV head, [tokens, dim]; keys after RoPE, row i at position i
  std::vector<MatrixView> queries{};  ///< per query head, where the calibrator needs them; after RoPE
  Rotary rotary{};
};

/// Numbers that were measured for each KV head of a layer, equally many of each.
struct CalibratedTable {
  std::string name{};
  std::vector<std::vector<float>> of_head{};
};

class Calibrator {
 public:
  virtual ~Calibrator() = default;
  virtual bool needs_queries() const { return false; }
  /// Comes once per run.
  virtual void observe(const LayerTokens& tokens) = 0;
  /// Comes last, and once. Throws Error(input) when the runs hold too little to measure.
  virtual std::vector<CalibratedTable> tables() = 0;
};

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
  bool queries = false;    ///< Prompt::queries, rotary, scale; Arrival::queries, Step::queries: all of them
  bool positions = false;  ///< row r of the prompt stands where Prompt::rotary says
  bool classes = false;    ///< Prompt::classes, Arrival::token_class
  bool output_weights = false;    ///< Prompt::output_weights
  bool second_pass = false;       ///< a second pass of the model over the prompt, of which Tables tell
  bool repeated_queries = false;  ///< and of its queries
  bool surprises = false;         ///< Prompt::surprises, Step::surprise
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

/// How much a unit may hold beside its budget of B tokens while tokens are generated. A policy is compared
/// with the bound of its own class, because a wider class may hold what a narrower one may not.
enum class Holding {
  managed,      ///< never more than B: a token that arrives at a full unit causes an eviction first
  append_only,  ///< B tokens of the prompt, chosen once, and every generated token
  overshoot,    ///< managed, but a query attends up to B + Part::overshoot, because tokens are evicted
                ///< after it
};

/// "managed", "append_only", "overshoot".
std::string_view holding_name(Holding holding);

/// Where paper and code, or two codes, or they and this policy, do not agree.
struct Departure {
  std::string theirs{};  ///< what is written or released, and by whom
  std::string ours{};    ///< what this policy does, or which parameters do the other
};

// What only policies of one kind say. A function that is null answers with its default.

struct EvictionRule {
  /// Decides itself how much it keeps: the feeder gives it the whole sequence as budget, whatever the study
  /// asks.
  bool own_budget = false;
  /// Ranks by a score that others may read: Eviction::scores, Decoder::scores.
  bool scored = false;
  /// Never evicts, so that all lanes and layers hold the same tokens.
  bool keeps_all = false;
  /// The least budget the policy honours: sinks + window, and room for the token being computed. null: what
  /// the shared parameters come to (KeepRule::floor), without any 1.
  std::function<std::size_t(const Params&)> floor{};
  /// Tokens beyond the budget that a query may attend, when a token attends before another leaves; null: 1
  /// with phase=post, else 0.
  std::function<std::size_t(const Params&)> overshoot{};
  std::function<std::unique_ptr<Eviction>(const Params&, const CacheUnit&)> make{};
};

/// An eviction that knows the future.
struct OracleRule {
  /// Answers Oracle::losses()? null: never.
  std::function<bool(const Params&)> loss_curve{};
  /// Only appends generated tokens? (Of other evictions their cost says so.) null: never.
  std::function<bool(const Params&)> appends{};
  std::function<std::unique_ptr<Oracle>(const Params&, const CacheUnit&)> make{};
};

struct AllocationRule {
  /// Gives every lane the same.
  bool even = false;
  /// Splits by AllocationRequest::scores: only evictions that are `scored` go with it.
  bool uses_scores = false;
  /// Splits by AllocationRequest::losses instead where the eviction is an oracle that has them.
  bool uses_losses = false;
  /// May give out another total than asked? null: never.
  std::function<bool(const Params&)> inexact{};
  /// Is the total what the rule comes to, so that it is asked even where the budget holds every prompt? Such
  /// a rule is inexact. null: never.
  std::function<bool(const Params&)> own_total{};
  std::function<std::unique_ptr<Allocation>(const Params&)> make{};
};

struct RepresentationRule {
  /// Whether `ledger` differs from layer to layer.
  bool by_depth = false;
  /// What the rows take, as long as no token has been evicted since the prompt; null: what they take as they
  /// come.
  std::function<Ledger(const Params&, const StorageShape&, LaneTokens held)> ledger{};
  /// Throws Error(usage) where the shape of the unit does not suit the parameters.
  std::function<std::unique_ptr<Representation>(const Params&, const CacheUnit&)> make{};
};

struct SelectionRule {
  /// What the queries of a layer read while every lane holds `stored` tokens, and what the index is.
  std::function<ReadCount(const Params&, const CostShape&, std::size_t layer, std::size_t stored)> reads{};
  /// Throws Error(usage) as that of a representation.
  std::function<std::unique_ptr<Selection>(const Params&, const CacheUnit&)> make{};
};

/// The policy of a prefix cache (policies/api/replacement.hpp).
struct ReplacementRule {
  std::function<std::unique_ptr<Replacement>(const Params&, const BlockSpace&)> make{};
  /// The same where BlockSpace::nodes. Throws Error(usage) for parameters that rank single blocks. null: the
  /// rule has no meaning for nodes.
  std::function<std::unique_ptr<Replacement>(const Params&, const BlockSpace&)> make_nodes{};
};

struct PolicySpec {
  std::string name{};
  std::vector<std::string> aliases{};
  std::string summary{};  ///< one line
  std::string paper{};    ///< authors, title, venue, year, link; empty for baselines
  std::string details{};  ///< the rule in a few sentences
  std::vector<Departure> departures{};
  std::vector<ParamSpec> params{};
  Needs needs{};
  /// When needs depend on parameters; null: `needs`.
  std::function<Needs(const Params&)> needs_of{};
  bool randomised = false;
  /// Lanes share one resident set (eviction), are stored together (representation), or are read together
  /// (selection)? null: with unit=layer.
  std::function<bool(const Params&)> layer_unit{};
  /// What the rule costs beside exact attention over what is stored. null: nothing (a full cache, a split by
  /// position).
  std::function<Cost(const Params&, const CostShape&)> cost{};
  /// Throws Error(usage) for combinations of parameters that single ranges cannot exclude. May be null.
  std::function<void(const Params&)> check{};
  /// Its name and those of its parameters that calibrated tables depend on.
  std::function<std::string(const Params&)> calibration_maker{};
  /// What measures the tables of a layer on other runs; `layer`: a unit of all its lanes. null: it needs
  /// none.
  std::function<std::unique_ptr<Calibrator>(const Params&, const CacheUnit& layer)> make_calibrator{};
  std::variant<EvictionRule, OracleRule, AllocationRule, RepresentationRule, SelectionRule, ReplacementRule>
      rule{};

  /// Null unless the rule is an R.
  template <class R>
  const R* as() const {
    return std::get_if<R>(&rule);
  }
  Kind kind() const;
  // False for policies of other kinds:
  bool is_oracle() const { return as<OracleRule>() != nullptr; }
  bool own_budget() const { return says(&EvictionRule::own_budget); }
  bool scored() const { return says(&EvictionRule::scored); }
  bool keeps_all() const { return says(&EvictionRule::keeps_all); }
  bool even() const { return says(&AllocationRule::even); }
  bool uses_scores() const { return says(&AllocationRule::uses_scores); }
  bool uses_losses() const { return says(&AllocationRule::uses_losses); }

 private:
  template <class R>
  bool says(bool R::*what) const {
    return as<R>() && as<R>()->*what;
  }
};

/// A factory of T(params, unit), T(params), T(unit) or T(), the first that there is; with a Rule that is read
/// from the parameters, of T(rule, unit) or T(rule). `unit`: what else the factory is told, if anything.
template <class T, class Rule = void>
inline constexpr auto made = [](const Params& params, const auto&... unit) {
  const auto given = [&]() -> decltype(auto) {
    if constexpr (std::is_void_v<Rule>)
      return (params);
    else if constexpr (std::is_constructible_v<Rule, const Params&>)
      return Rule(params);
    else
      return Rule::of(params);
  };
  using Given = decltype(given());
  if constexpr (std::is_constructible_v<T, Given, decltype(unit)...>)
    return std::make_unique<T>(given(), unit...);
  else if constexpr (std::is_constructible_v<T, Given>)
    return std::make_unique<T>(given());
  else if constexpr (std::is_constructible_v<T, decltype(unit)...>)
    return std::make_unique<T>(unit...);
  else
    return std::make_unique<T>();
};

/// A policy with a value for every parameter. What the rule of a kind answers is asked of policies of that
/// kind alone.
struct Part {
  const PolicySpec* spec = nullptr;
  Params params;

  std::string text() const;  ///< "h2o(recent=0.5,...)": every effective value
  bool layer_unit() const;
  Needs needs() const { return spec->needs_of ? spec->needs_of(params) : spec->needs; }
  bool inexact() const { return told(rule<AllocationRule>().inexact); }
  bool own_total() const { return told(rule<AllocationRule>().own_total); }
  std::size_t floor() const;  ///< least budget per lane, at least 1
  std::size_t overshoot() const;
  Cost cost(const CostShape& shape) const { return spec->cost ? spec->cost(params, shape) : Cost{}; }
  bool has_loss_curve() const { return spec->is_oracle() && told(rule<OracleRule>().loss_curve); }
  /// What an eviction holds with these parameters, in lanes that it may evict from at all; none if it decides
  /// by itself how much it keeps.
  std::optional<Holding> holding() const;
  /// Of a policy that is no oracle.
  std::unique_ptr<Eviction> make_eviction(const CacheUnit& unit) const {
    return rule<EvictionRule>().make(params, unit);
  }
  std::unique_ptr<Oracle> make_oracle(const CacheUnit& unit) const {
    return rule<OracleRule>().make(params, unit);
  }
  std::unique_ptr<Allocation> make_allocation() const { return rule<AllocationRule>().make(params); }
  std::unique_ptr<Representation> make_representation(const CacheUnit& unit) const {
    return rule<RepresentationRule>().make(params, unit);
  }
  std::unique_ptr<Selection> make_selection(const CacheUnit& unit) const {
    return rule<SelectionRule>().make(params, unit);
  }
  ReadCount reads(const CostShape& shape, std::size_t layer, std::size_t stored) const {
    return rule<SelectionRule>().reads(params, shape, layer, stored);
  }
  Ledger ledger(const StorageShape& shape, std::uint64_t kept, std::uint64_t appended) const;
  /// Of one such unit in every layer, added up; of `shape` the layer does not matter.
  Ledger ledger_of_layers(StorageShape shape, std::uint64_t kept, std::uint64_t appended) const;
  /// Eviction::protection of a prompt so long, under any budget; an oracle protects nothing.
  std::function<Protection(std::size_t budget, std::size_t prompt)> protection() const;

 private:
  template <class R>
  const R& rule() const {
    return std::get<R>(spec->rule);
  }
  bool told(const std::function<bool(const Params&)>& answer) const { return answer && answer(params); }
};

/// Every parameter has a default, and a trace has all that is needed; with `second_pass` also where the model
/// has to run once more.
bool complete(const PolicySpec& spec, bool second_pass = false);

/// A published system under its own name: text that expands to a composition.
struct PresetSpec {
  std::string name, expansion, summary, paper;
};

}  // namespace kvsim::policy
