#pragma once
/// What a policy says about itself, once: help, validation, documentation and test sweeps are generated from
/// it.
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/eviction.hpp"

namespace kvsim::policy {

enum class ParamType {
  count,   ///< whole number >= 0
  real,    ///< finite number
  flag,    ///< true | false
  choice,  ///< one of `choices`
  pool,    ///< none | avg:K | max:K with odd K
};

/// The value of a parameter after parsing: canonical text and, for numbers, the number.
class Params {
 public:
  /// All throw Error(bug) for a name or type the spec did not declare.
  std::size_t count(std::string_view name) const;        ///< ParamType::count
  double real(std::string_view name) const;              ///< ParamType::real
  bool flag(std::string_view name) const;                ///< ParamType::flag
  const std::string& word(std::string_view name) const;  ///< ParamType::choice, ParamType::pool
  /// "a=1,b=mean": every parameter, in the order of the spec.
  std::string text() const;

  struct Entry {
    std::string name{}, text{};  ///< text is canonical: equal values have equal text
    ParamType type = ParamType::count;
    double number = 0;  ///< of count and real; 0 or 1 of a flag; K of a pool
  };
  std::vector<Entry> entries;

 private:
  const Entry& find(std::string_view name, ParamType type) const;
};

struct ParamSpec {
  std::string name{};
  ParamType type = ParamType::count;
  std::string fallback{};   ///< default, as typed
  double min = 0, max = 0;  ///< inclusive, for count and real
  std::vector<std::string> choices{};
  std::string unit{};  ///< tokens, share, ... or empty
  std::string help{};
};

/// What it needs from a trace, for `policy show` and for refusing traces that lack it.
enum class RowNeed { none, window, all };
struct Needs {
  RowNeed prompt_rows = RowNeed::none;
  bool decode_rows = false, keys = false, values = false;
};

enum class Kind { eviction, allocation };

struct PolicySpec {
  std::string name{};
  std::vector<std::string> aliases{};
  Kind kind = Kind::eviction;
  std::string summary{};  ///< one line
  std::string paper{};    ///< authors, title, venue, year, link; empty for baselines
  std::string details{};  ///< the rule in a few sentences, and where it departs from paper or code
  std::vector<ParamSpec> params{};
  Needs needs{};
  bool randomised = false;
  /// Never evicts (eviction): the feeder gives it the whole sequence as budget, whatever the study asks.
  bool unbounded = false;

  /// Lanes share one resident set? (eviction) Decided by parameters, hence a function; null: never.
  std::function<bool(const Params&)> layer_unit{};
  /// The least budget the policy honours: sinks + window, and room for the token being computed. null: 1.
  std::function<std::size_t(const Params&)> floor{};
  /// Throws Error(usage) for combinations of parameters that single ranges cannot exclude. May be null.
  std::function<void(const Params&)> check{};
  std::function<std::unique_ptr<Eviction>(const Params&, const Unit&)> make_eviction{};  ///< Kind::eviction
  std::function<std::unique_ptr<Allocation>(const Params&)> make_allocation{};           ///< Kind::allocation
};

/// A published system under its own name: text that expands to a composition.
struct PresetSpec {
  std::string name, expansion, summary, paper;
};

}  // namespace kvsim::policy
