#pragma once
/// Published numbers and what the cost models say: the table that tests itself. A source is a file of this
/// folder and a line in sources.def.
#include <string>
#include <vector>

namespace kvsim::cost {

/// How sure we are of the published number itself.
enum class Evidence {
  verified,  ///< read in the source, or measured data it ships
  derived,   ///< follows from its code or formula
  recalled,  ///< known, not read again: shown, never asserted
};

/// What is expected of ours.
enum class Status {
  exact,          ///< equal as far as the source prints digits
  within,         ///< relative error at most `tolerance`
  contradicted,   ///< the source's own formula says otherwise: shown, not fitted to
  not_derivable,  ///< needs what no formula has; `why` says what
};

struct Check {
  std::string quantity{};  ///< with its conditions: model, length, batch
  std::string unit{};      ///< as printed in the source
  double published = 0;
  double ours = 0;       ///< in that unit; nothing if not derivable
  int digits = 0;        ///< decimals the source prints: exact is equality after rounding to them
  double tolerance = 0;  ///< relative, of `within`
  Evidence evidence = Evidence::derived;
  Status expected = Status::exact;
  std::string why{};  ///< assumption made, or why it cannot be had or contradicts
};

struct Source {
  std::string name{};   ///< "KVCrush, eq. 1"
  std::string paper{};  ///< authors, title, venue, where to read it
  std::vector<Check> (*checks)() = nullptr;
};
const std::vector<Source>& validation_sources();

double relative_error(const Check& check);
/// Whether ours is what is expected; always true of what is not asserted: recalled evidence, contradicted
/// claims that indeed differ, what cannot be derived.
bool holds(const Check& check);

}  // namespace kvsim::cost
