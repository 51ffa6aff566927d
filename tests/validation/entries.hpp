#pragma once
/// Helpers with which the files of this folder state their checks.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "tests/validation/published.hpp"

namespace kvsim::cost {

inline constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
inline constexpr double kMB = 1e6, kGB = 1e9, kTB = 1e12;

/// Tolerated errors of numbers to which nothing was fitted: the models' aims by kind of number, stated before
/// any comparison.
namespace aim {
inline constexpr double kBytes = 0.03;      ///< sizes
inline constexpr double kProduct = 0.2;     ///< one matrix product: tiles may not fit its size
inline constexpr double kProducts = 0.08;   ///< the mean of many products
inline constexpr double kStep = 0.12;       ///< passes and kernels of a machine with fitted products
inline constexpr double kOffload = 0.15;    ///< passes whose weights or cache come over a link
inline constexpr double kServed = 0.15;     ///< mean TPOT of requests that wait for each other, on such a machine
inline constexpr double kDatasheet = 0.35;  ///< times from datasheet rates only
}  // namespace aim

/// A relative tolerance; a number that misses it is shown as missed, and the tolerance is not widened.
struct Tolerance {
  Tolerance(double of_published, bool is_missed = false) : share(of_published), missed(is_missed) {}
  double share;
  bool missed;
};

/// Mean absolute relative error of held-out numbers.
struct HeldOutMean {
  double sum = 0;
  std::size_t count = 0;
  void add(double error) {
    sum += std::abs(error);
    ++count;
  }
};

/// Returns the shortest text that reads back as the same float, as a source prints it.
std::string shortest(float number);

/// One source's checks, in its order. Published numbers are texts, as the source prints them: "12.6934" has
/// four decimals.
class Entries {
 public:
  explicit Entries(Evidence evidence) : evidence_(evidence) {}

  /// Applies to the checks that follow.
  Entries& evidence(Evidence evidence);
  Entries& subject(Subject subject);
  /// States that the published numbers belong to these measurements, and that a fit saw them unless
  /// `held_out`.
  Entries& of(std::string measurements, bool held_out = false);

  Entries& exact(std::string quantity, std::string_view published, std::string unit, double ours,
                 std::string why = {});
  Entries& within(Tolerance tolerance, std::string quantity, std::string_view published, std::string unit,
                  double ours, std::string why = {});
  Entries& at_most(std::string quantity, std::string_view published, std::string unit, double ours,
                   std::string why = {});
  /// Checks that the mean error of the numbers held out of `of` is at most the aim; the bound is ours, the
  /// numbers are the source's.
  Entries& mean(double aim, const std::string& name, const HeldOutMean& errors);
  /// Our number differs by more than a twentieth.
  Entries& contradicted(std::string quantity, std::string_view published, std::string unit, double ours,
                        std::string why);
  Entries& not_derivable(std::string quantity, std::string_view published, std::string unit, std::string why);

  std::vector<Check> take() { return std::move(checks_); }

 private:
  Entries& add(Status expected, std::string quantity, std::string_view published, std::string unit,
               double ours, std::string why, double tolerance);

  Evidence evidence_;
  Subject subject_ = Subject::bytes;
  std::string measurements_{};
  bool held_out_ = false;
  std::vector<Check> checks_{};
};

/// How fits weigh errors (relative_fit.hpp): errors above 5 % count linearly, and no parameter is held near
/// its start.
inline constexpr double kFitKnee = 0.05, kFitHold = 1e-6;

/// Of measurements in order, fits use the first, the third and so on; the others are held out.
constexpr bool held_out(std::size_t index) {
  return index % 2 == 1;
}

/// Returns a model with only the numbers that determine its cache.
Model cache_shape(std::string name, std::uint64_t layers, std::uint64_t query_heads, std::uint64_t kv_heads,
                  std::uint64_t head_dim);
/// Returns a holding in which every lane of every layer holds `tokens` and grows until `limit`.
Holding evenly(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t tokens,
               std::uint64_t limit = kNoLimit);
/// Returns a machine that reaches its datasheet rates: no launches, no efficiencies, compute and memory
/// overlap.
Machine ideal(double matrix_rate, double bandwidth);
/// Returns a workload with the default page and elements.
Serving serve(std::uint64_t prompt, std::uint64_t generate, std::uint64_t batch);

/// Returns what a selection such as "quest(read=4096)" states of a layer whose lanes hold `tokens` each.
policy::ReadCount selection_reads(const Inputs& inputs, const std::string& selection, const Model& model,
                                  std::uint64_t layer, std::uint64_t tokens);
/// Returns the bytes that a step reads by that statement in all layers: keys, values and index of 16 bits.
double bytes_read(const Inputs& inputs, const std::string& selection, const Model& model,
                  std::uint64_t tokens);

/// Returns full_cache_bytes() as a real number, for a plain cache in 16 bits.
double cache_bytes(const Model& model, std::uint64_t tokens, std::uint64_t batch = 1);

}  // namespace kvsim::cost
