#pragma once
/// Sums, means and shares over the lanes that a value is measured from.
#include <functional>
#include <optional>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

inline double count(std::uint64_t value) {
  return static_cast<double>(value);
}

/// `get`: a member of LaneOutcome, or a function of one.
template <class Get>
double sum(const Measured& of, Get get) {
  double total = 0;
  for (const sim::LaneOutcome& lane : of.lanes) total += static_cast<double>(std::invoke(get, lane));
  return total;
}

template <class Get>
double mean(const Measured& of, Get get) {
  return sum(of, get) / count(of.lanes.size());
}

/// Mean over lanes of a count.
template <std::uint64_t sim::LaneOutcome::*member>
Value mean_of(const Measured& of) {
  return mean(of, member);
}

/// Mean over lanes of the mean over a lane's measured steps, of a sum over steps; undefined without steps.
template <double sim::LaneOutcome::*total>
Value mean_over_steps(const Measured& of) {
  double means = 0;
  for (const sim::LaneOutcome& lane : of.lanes) {
    if (lane.steps == 0) return {};
    means += lane.*total / count(lane.steps);
  }
  return means / count(of.lanes.size());
}

/// Whether a representation stores other numbers than the recorded ones: what is lost of attention is not
/// measured.
inline bool stores_others(const Measured& of) {
  return of.lanes.front().stored.has_value();
}

/// mean_over_steps(), undefined where other numbers are stored.
template <double sim::LaneOutcome::*total>
Value exact_mean_over_steps(const Measured& of) {
  return stores_others(of) ? Value() : mean_over_steps<total>(of);
}

/// Mean over lanes at one step.
template <auto member>
Value mean_at_step(const Measured& of, std::uint64_t step) {
  return mean(of, [&](const sim::LaneOutcome& lane) { return std::invoke(member, lane.each_step[step]); });
}

/// mean_at_step(), undefined where other numbers are stored.
template <auto member>
Value exact_mean_at_step(const Measured& of, std::uint64_t step) {
  return stores_others(of) ? Value() : mean_at_step<member>(of, step);
}

inline Value share(const sim::PaidAttention& attention) {
  return ratio(attention.dropped, attention.paid);
}

/// Of the attention that all lanes paid, what fell on dropped positions: lanes weigh by what they paid.
template <class Get>
sim::PaidAttention paid(const Measured& of, Get get) {
  sim::PaidAttention total;
  for (const sim::LaneOutcome& lane : of.lanes) total += std::invoke(get, lane);
  return total;
}

}  // namespace kvsim::analysis
