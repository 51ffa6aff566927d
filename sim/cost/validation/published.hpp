#pragma once
/// Published numbers and what the cost models say: the table that tests itself. A source is a file of this
/// folder and a line in sources.def.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "policies/api/registry.hpp"
#include "sim/cost/validation/inputs.hpp"

namespace kvsim::cost {

/// How sure we are of the published number itself.
enum class Evidence {
  verified,  ///< read in the source, or measured data it ships
  derived,   ///< not printed there: what its code or formula gives by hand
  recalled,  ///< known, not read again, or compared under conditions that are: shown, never asserted
};
const char* evidence_name(Evidence evidence);

/// What is expected of ours.
enum class Status {
  exact,          ///< equal as far as the source prints digits
  within,         ///< relative error at most `tolerance`, which was stated before it was known
  missed,         ///< beyond that tolerance: shown, not hidden by a wider one
  at_most,        ///< not above the published bound
  contradicted,   ///< the source's own formula says otherwise: shown, not fitted to
  not_derivable,  ///< needs what no formula has; `why` says what
};
const char* status_name(Status status);

/// What an agreement with a published number is worth. It follows from the check and from what it rests on.
enum class Class {
  printed,         ///< read in the source, and met by inputs of which none was fitted to anything
  held_out,        ///< read in the source, and met by inputs that were fitted to other numbers
  own_arithmetic,  ///< a number of ours: evidence of nothing published
  fitted,          ///< some input was chosen from the numbers it is compared with
  none,            ///< nothing is claimed: missed, contradicted, not derivable, or recalled
};
const char* class_name(Class of);

/// Bytes and counts follow from shapes alone; times and their ratios from calibrated ceilings.
enum class Subject { bytes, time };

struct Check {
  std::string quantity{};  ///< with its conditions: model, length, batch
  std::string unit{};      ///< as printed in the source; why says when it prints GB and counts GiB
  Subject subject = Subject::bytes;
  double published = 0;
  double ours = 0;       ///< in that unit; nothing if not derivable
  int digits = 0;        ///< decimals the source prints: exact is equality after rounding to them
  double tolerance = 0;  ///< relative: of `within`, and what a missed or contradicted number is beyond
  Evidence evidence = Evidence::derived;
  Status expected = Status::exact;
  std::string why{};  ///< assumption made, or why it cannot be had or contradicts
  /// The measurements that the published number is one of, as fits name them; empty: nothing is fitted to
  /// them.
  std::string measurements{};
  bool held_out = false;  ///< one of them that the fit did not see
  /// Measurements to which something was fitted that ours changes with.
  std::vector<std::string> rests_on{};
};
Class class_of(const Check& check);

struct Source {
  std::string name{};                      ///< "KVCrush, eq. 1"
  std::string paper{};                     ///< authors, title, venue, where to read it
  std::vector<std::string> assumptions{};  ///< of all its checks, one sentence each
  /// The mean absolute relative error of its held-out times must not be above it: the aim stated for their
  /// kind (entries.hpp). Nothing where no time is held out, or where those that are miss it: shown then.
  std::optional<double> held_out_error{};
  std::vector<Check> (*checks)(Inputs& inputs) = nullptr;
};
const std::vector<Source>& validation_sources();

/// The source's checks with what each rests on, found by changing every fitted input and looking which of
/// ours change.
std::vector<Check> checks_of(const Source& source, const policy::Registry& policies);

/// (ours - published) / |published|.
double relative_error(const Check& check);
/// Whether ours is what is expected. Always true of recalled evidence and what cannot be derived.
bool holds(const Check& check);
/// Whether a wrong number of ours would be noticed.
bool asserted(const Check& check);

/// Of the times with a tolerance that are of that class by their inputs, those that miss it included; nothing
/// if there are none.
std::optional<double> mean_time_error(const std::vector<Check>& checks, Class of);

/// How many checks of a source are what. The first eight add up to the entries.
struct Tally {
  std::size_t printed = 0, held_out = 0, own_arithmetic = 0, fitted = 0;
  std::size_t missed = 0, contradicted = 0, not_derivable = 0;
  std::size_t recalled = 0;  ///< whatever is expected of them
  std::size_t entries = 0;
  std::size_t printed_exact = 0;  ///< of the printed
  std::size_t failed = 0;         ///< that do not hold
};
Tally tally(const std::vector<Check>& checks);

}  // namespace kvsim::cost
