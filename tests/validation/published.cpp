#include "tests/validation/published.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace kvsim::cost {

#define KVSIM_SOURCE(function) Source function();
#include "tests/validation/sources.def"
#undef KVSIM_SOURCE

const std::vector<Source>& validation_sources() {
  static const std::vector<Source> kSources{
#define KVSIM_SOURCE(function) function(),
#include "tests/validation/sources.def"
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
    case Status::missed:
      return "missed";
    case Status::at_most:
      return "at most";
    case Status::contradicted:
      return "contradicted";
    case Status::not_derivable:
      return "not derivable";
  }
  return "";
}

const char* class_name(Class of) {
  switch (of) {
    case Class::printed:
      return "printed";
    case Class::held_out:
      return "held out";
    case Class::own_arithmetic:
      return "own arithmetic";
    case Class::fitted:
      return "fitted";
    case Class::none:
      return "none";
  }
  return "";
}

namespace {

/// The source prints a rounded number, so ours must round to it.
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
    case Status::missed:
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

namespace {

/// Classifies a check by its inputs: fitted to the number it is compared with, to other numbers only, or to
/// nothing.
Class class_by_inputs(const Check& check) {
  if (check.evidence == Evidence::derived) return Class::own_arithmetic;
  if (check.rests_on.empty()) return Class::printed;
  const bool seen =
      std::find(check.rests_on.begin(), check.rests_on.end(), check.measurements) != check.rests_on.end();
  return seen && !check.held_out ? Class::fitted : Class::held_out;
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace

Class class_of(const Check& check) {
  const bool claimed = check.expected == Status::exact || check.expected == Status::within ||
                       check.expected == Status::at_most;
  return claimed && asserted(check) ? class_by_inputs(check) : Class::none;
}

std::vector<Check> checks_of(const Source& source, const policy::Registry& policies) {
  // Far enough in both directions that a number rounded down to whole sequences or blocks changes, too.
  constexpr double kFactors[] = {0.25, 4};
  Inputs inputs(policies);
  std::vector<Check> checks = source.checks(inputs);
  for (const std::string& measurements : inputs.asked_for())
    for (const double factor : kFactors) {
      Inputs other(policies, measurements, factor);
      const std::vector<Check> changed = source.checks(other);
      if (changed.size() != checks.size()) bug("entries come and go with their inputs", source.name);
      for (std::size_t i = 0; i < checks.size(); ++i) {
        std::vector<std::string>& rests_on = checks[i].rests_on;
        if (!same(checks[i].ours, changed[i].ours) &&
            std::find(rests_on.begin(), rests_on.end(), measurements) == rests_on.end())
          rests_on.push_back(measurements);
      }
    }
  return checks;
}

std::optional<double> mean_time_error(const std::vector<Check>& checks, Class of) {
  double sum = 0;
  std::size_t times = 0;
  for (const Check& check : checks) {
    if (check.subject != Subject::time || !asserted(check)) continue;
    if (check.expected != Status::within && check.expected != Status::missed) continue;
    if (class_by_inputs(check) != of) continue;
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
    counts.failed += !holds(check);
    if (check.evidence == Evidence::recalled) {
      ++counts.recalled;
      continue;
    }
    switch (class_of(check)) {
      case Class::printed:
        ++counts.printed;
        counts.printed_exact += check.expected == Status::exact;
        break;
      case Class::held_out:
        ++counts.held_out;
        break;
      case Class::own_arithmetic:
        ++counts.own_arithmetic;
        break;
      case Class::fitted:
        ++counts.fitted;
        break;
      case Class::none:
        ++(check.expected == Status::missed         ? counts.missed
           : check.expected == Status::contradicted ? counts.contradicted
                                                    : counts.not_derivable);
        break;
    }
  }
  return counts;
}

}  // namespace kvsim::cost
