#pragma once
/// Published numbers beside the numbers of the cost models, as a table that is tested. A source is a file of
/// this folder and a line in sources.def.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/registry.hpp"
#include "tests/validation/inputs.hpp"

namespace kvsim::cost {

/// How certain the published number itself is.
enum class Evidence {
  verified,  ///< read in the source, or in measured data that it ships
  derived,   ///< not printed in the source: computed by hand from its code or formula
  recalled,  ///< known but not checked in the source, or compared under such conditions: shown, never
             ///< asserted
};
const char* evidence_name(Evidence evidence);

/// What is expected of our number.
enum class Status {
  exact,          ///< equal as far as the source prints digits
  within,         ///< relative error at most `tolerance`, which was stated before the error was known
  missed,         ///< beyond that tolerance: shown, and the tolerance not widened
  at_most,        ///< not above the published bound
  contradicted,   ///< the source's own formula disagrees with it: shown, not fitted
  not_derivable,  ///< needs inputs that no formula has; `why` names them
};
const char* status_name(Status status);

/// The evidence that an agreement with a published number gives. It follows from the check and its inputs.
enum class Class {
  printed,         ///< read in the source, and met by inputs without any fit
  held_out,        ///< read in the source, and met by inputs fitted to other numbers
  own_arithmetic,  ///< a number of our own, no evidence for a published one
  fitted,          ///< an input was fitted to the numbers it is compared with
  none,            ///< no claim: missed, contradicted, not derivable, or recalled
};
const char* class_name(Class of);

/// Bytes and counts follow from shapes alone; times and their ratios from calibrated ceilings.
enum class Subject { bytes, time };

struct Check {
  std::string quantity{};  ///< with its conditions: model, length, batch
  std::string unit{};      ///< as printed in the source; why says when it prints GB and counts GiB
  Subject subject = Subject::bytes;
  double published = 0;
  double ours = 0;       ///< in that unit; 0 if not derivable
  int digits = 0;        ///< decimals the source prints: exact is equality after rounding to them
  double tolerance = 0;  ///< relative, for `within`; a missed or contradicted number exceeds it
  Evidence evidence = Evidence::derived;
  Status expected = Status::exact;
  std::string why{};  ///< the assumption made, or why the number is not derivable or is contradicted
  /// The measurements to which the published number belongs, as fits name them; empty: nothing is fitted to
  /// them.
  std::string measurements{};
  bool held_out = false;  ///< the number is one of them, and the fit did not see it
  /// Measurements to which inputs of our number were fitted.
  std::vector<std::string> rests_on{};
};
Class class_of(const Check& check);

struct Source {
  std::string name{};                      ///< "KVCrush, eq. 1"
  std::string paper{};                     ///< authors, title, venue, where to read it
  std::vector<std::string> assumptions{};  ///< assumptions of all its checks, one sentence each
  /// Upper limit of the mean absolute relative error of its held-out times: the aim stated for their kind
  /// (entries.hpp). Empty where no time is held out, or where the held-out times miss the aim, which is then
  /// shown.
  std::optional<double> held_out_error{};
  std::vector<Check> (*checks)(Inputs& inputs) = nullptr;
};
const std::vector<Source>& validation_sources();

/// Returns the source's checks with the measurements that each rests on, found by changing every fitted input
/// and comparing our numbers.
std::vector<Check> checks_of(const Source& source, const policy::Registry& policies);

/// Returns (ours - published) / |published|.
double relative_error(const Check& check);
/// Returns whether our number is as expected. Always true for recalled evidence and underivable numbers.
bool holds(const Check& check);
/// Returns whether a wrong number of ours would fail.
bool asserted(const Check& check);

/// Returns the mean absolute relative error of the times with a tolerance that belong to that class by their
/// inputs, including those that miss it; empty if there are none.
std::optional<double> mean_time_error(const std::vector<Check>& checks, Class of);

/// Counts of a source's checks by class. The first eight add up to the entries.
struct Tally {
  std::size_t printed = 0, held_out = 0, own_arithmetic = 0, fitted = 0;
  std::size_t missed = 0, contradicted = 0, not_derivable = 0;
  std::size_t recalled = 0;  ///< whatever their expectation
  std::size_t entries = 0;
  std::size_t printed_exact = 0;  ///< of the printed ones
  std::size_t failed = 0;         ///< checks that do not hold
};
Tally tally(const std::vector<Check>& checks);

}  // namespace kvsim::cost
