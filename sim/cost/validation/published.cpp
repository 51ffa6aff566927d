#include "sim/cost/validation/published.hpp"

#include <cmath>

namespace kvsim::cost {

#define KVSIM_SOURCE(function) Source function();
#include "sim/cost/validation/sources.def"
#undef KVSIM_SOURCE

const std::vector<Source>& validation_sources() {
  static const std::vector<Source> kSources{
#define KVSIM_SOURCE(function) function(),
#include "sim/cost/validation/sources.def"
#undef KVSIM_SOURCE
  };
  return kSources;
}

const char* evidence_name(Evidence evidence) {
  switch (evidence) {
    case Evidence::verified:
      return "verified";
    case Evidence::derived:
      return "derived";
    case Evidence::recalled:
      return "recalled";
  }
  return "";
}

const char* status_name(Status status) {
  switch (status) {
    case Status::exact:
      return "exact";
    case Status::within:
      return "within";
    case Status::at_most:
      return "at most";
    case Status::contradicted:
      return "contradicted";
    case Status::not_derivable:
      return "not derivable";
  }
  return "";
}

namespace {

/// The source prints a rounded number: ours must be one that it could have rounded.
bool rounds_to_published(const Check& check) {
  const double half_unit = 0.5 * std::pow(10.0, -check.digits);
  return std::abs(check.ours - check.published) <= half_unit * (1 + 1e-9);
}

bool meets_expectation(const Check& check) {
  if (!std::isfinite(check.ours)) return false;
  switch (check.expected) {
    case Status::exact:
      return rounds_to_published(check);
    case Status::within:
      return std::abs(relative_error(check)) <= check.tolerance;
    case Status::at_most:
      return check.ours <= check.published;
    case Status::contradicted:
      return std::abs(relative_error(check)) > check.tolerance;
    case Status::not_derivable:
      return true;
  }
  return false;
}

}  // namespace

double relative_error(const Check& check) {
  return (check.ours - check.published) / std::abs(check.published);
}

bool asserted(const Check& check) {
  return check.evidence != Evidence::recalled && check.expected != Status::not_derivable;
}

bool holds(const Check& check) {
  return !asserted(check) || meets_expectation(check);
}

std::optional<double> mean_time_error(const std::vector<Check>& checks) {
  double sum = 0;
  std::size_t times = 0;
  for (const Check& check : checks)
    if (check.subject == Subject::time && check.expected == Status::within && asserted(check)) {
      sum += std::abs(relative_error(check));
      ++times;
    }
  if (times == 0) return std::nullopt;
  return sum / static_cast<double>(times);
}

Tally tally(const std::vector<Check>& checks) {
  Tally counts;
  counts.entries = checks.size();
  for (const Check& check : checks) {
    switch (check.expected) {
      case Status::exact:
        ++counts.exact;
        break;
      case Status::within:
        ++counts.within;
        break;
      case Status::at_most:
        ++counts.at_most;
        break;
      case Status::contradicted:
        ++counts.contradicted;
        break;
      case Status::not_derivable:
        ++counts.not_derivable;
        break;
    }
    counts.derived += check.evidence == Evidence::derived;
    counts.recalled += check.evidence == Evidence::recalled;
    counts.failed += !holds(check);
  }
  return counts;
}

}  // namespace kvsim::cost
