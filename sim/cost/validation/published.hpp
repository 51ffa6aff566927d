#pragma once
/// Published numbers and what the cost models say: the table that tests itself. A source is a file of this
/// folder and a line in sources.def.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/registry.hpp"

namespace kvsim::cost {

/// How sure we are of the published number itself.
enum class Evidence {
  verified,  ///< read in the source, or measured data it ships
  derived,   ///< follows from its code or formula
  recalled,  ///< known, not read again, or compared under conditions that are: shown, never asserted
};
const char* evidence_name(Evidence evidence);

/// What is expected of ours.
enum class Status {
  exact,          ///< equal as far as the source prints digits
  within,         ///< relative error at most `tolerance`
  at_most,        ///< not above the published bound
  contradicted,   ///< the source's own formula says otherwise: shown, not fitted to
  not_derivable,  ///< needs what no formula has; `why` says what
};
const char* status_name(Status status);

/// Bytes and counts follow from shapes alone; times and their ratios from calibrated ceilings.
enum class Subject { bytes, time };

struct Check {
  std::string quantity{};  ///< with its conditions: model, length, batch
  std::string unit{};      ///< as printed in the source; why says when it prints GB and counts GiB
  Subject subject = Subject::bytes;
  double published = 0;
  double ours = 0;       ///< in that unit; nothing if not derivable
  int digits = 0;        ///< decimals the source prints: exact is equality after rounding to them
  double tolerance = 0;  ///< relative: of `within`, and what a contradicted claim is beyond
  Evidence evidence = Evidence::derived;
  Status expected = Status::exact;
  std::string why{};  ///< assumption made, or why it cannot be had or contradicts
};

struct Source {
  std::string name{};                      ///< "KVCrush, eq. 1"
  std::string paper{};                     ///< authors, title, venue, where to read it
  std::vector<std::string> assumptions{};  ///< of all its checks, one sentence each
  /// What calibration was shown to reach on the times of this source: their mean absolute relative error must
  /// not be above it. Nothing where no time is compared.
  std::optional<double> time_error{};
  std::vector<Check> (*checks)(const policy::Registry& policies) = nullptr;
};
const std::vector<Source>& validation_sources();

/// (ours - published) / |published|.
double relative_error(const Check& check);
/// Whether ours is what is expected. Always true of recalled evidence and what cannot be derived.
bool holds(const Check& check);
/// Whether a wrong number of ours would be noticed.
bool asserted(const Check& check);

/// Of the times that are expected to be within a tolerance and not recalled; nothing if there are none.
std::optional<double> mean_time_error(const std::vector<Check>& checks);

/// How many checks of a source say what.
struct Tally {
  std::size_t entries = 0, exact = 0, within = 0, at_most = 0, contradicted = 0, not_derivable = 0;
  std::size_t derived = 0, recalled = 0;  ///< by evidence, among all of them
  std::size_t failed = 0;                 ///< that do not hold
};
Tally tally(const std::vector<Check>& checks);

}  // namespace kvsim::cost
