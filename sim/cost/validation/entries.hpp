#pragma once
/// How the files of this folder write their checks down.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"
#include "sim/cost/validation/published.hpp"

namespace kvsim::cost {

inline constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
inline constexpr double kMB = 1e6, kGB = 1e9, kTB = 1e12;

/// How far off a number may be to which nothing was fitted: aims of the models, stated before anything was
/// compared, by what the number is.
namespace aim {
inline constexpr double kBytes = 0.03;      ///< sizes
inline constexpr double kProduct = 0.2;     ///< one matrix product: tiles may not fit its size
inline constexpr double kProducts = 0.08;   ///< the mean of many
inline constexpr double kStep = 0.12;       ///< passes and kernels of a machine whose products were fitted
inline constexpr double kOffload = 0.15;    ///< passes whose weights or cache come over a link
inline constexpr double kDatasheet = 0.35;  ///< times by datasheet rates alone
}  // namespace aim

/// Relative; a number that misses it is shown as missed rather than given a wider one.
struct Tolerance {
  Tolerance(double of_published, bool is_missed = false) : share(of_published), missed(is_missed) {}
  double share;
  bool missed;
};

/// The mean absolute relative error of numbers that are held out.
struct HeldOutMean {
  double sum = 0;
  std::size_t count = 0;
  void add(double error) {
    sum += std::abs(error);
    ++count;
  }
};

/// A float as short as reads back as the same: what a source printed.
std::string shortest(float number);

/// One source's checks, in its order. Published numbers are texts, as the source prints them: "12.6934" has
/// four decimals.
class Entries {
 public:
  explicit Entries(Evidence evidence) : evidence_(evidence) {}

  /// Of the checks that follow.
  Entries& evidence(Evidence evidence);
  Entries& subject(Subject subject);
  /// The published numbers are of these measurements, and among those that a fit saw unless `held_out`.
  Entries& of(std::string measurements, bool held_out = false);

  Entries& exact(std::string quantity, std::string_view published, std::string unit, double ours,
                 std::string why = {});
  Entries& within(Tolerance tolerance, std::string quantity, std::string_view published, std::string unit,
                  double ours, std::string why = {});
  Entries& at_most(std::string quantity, std::string_view published, std::string unit, double ours,
                   std::string why = {});
  /// The mean error of what was held out of `of`, which is at most the aim: the bound is ours, the numbers
  /// are the source's.
  Entries& mean(double aim, const std::string& name, const HeldOutMean& errors);
  /// Ours differs by more than a twentieth.
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

/// How fits weigh errors (relative_fit.hpp): those above 5 % count linearly, and nothing is held to where it
/// started.
inline constexpr double kFitKnee = 0.05, kFitHold = 1e-6;

/// Of measurements in order, fits see the first, the third and so on; the others are held out.
constexpr bool held_out(std::size_t index) {
  return index % 2 == 1;
}

/// A model of which only what its cache takes is known.
Model cache_shape(std::string name, std::uint64_t layers, std::uint64_t query_heads, std::uint64_t kv_heads,
                  std::uint64_t head_dim);
/// Every lane of every layer holds `tokens` and grows until `limit`.
Holding evenly(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t tokens,
               std::uint64_t limit = kNoLimit);
/// A machine that does what its data sheet says: no launches, no shares, compute and memory overlap.
Machine ideal(double matrix_rate, double bandwidth);
/// A workload without a page or encoding of its own.
Serving serve(std::uint64_t prompt, std::uint64_t generate, std::uint64_t batch);

/// full_cache_bytes() as a real number, cached plainly in 16 bits.
double cache_bytes(const Model& model, std::uint64_t tokens, std::uint64_t batch = 1);

}  // namespace kvsim::cost
