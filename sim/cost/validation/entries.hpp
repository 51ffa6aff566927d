#pragma once
/// How the files of this folder write their checks down.
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

/// One source's checks, in its order. Published numbers are texts, as the source prints them: "12.6934" has
/// four decimals.
class Entries {
 public:
  explicit Entries(Evidence evidence) : evidence_(evidence) {}

  /// Of the checks that follow.
  Entries& evidence(Evidence evidence);
  Entries& subject(Subject subject);

  Entries& exact(std::string quantity, std::string_view published, std::string unit, double ours,
                 std::string why = {});
  Entries& within(double tolerance, std::string quantity, std::string_view published, std::string unit,
                  double ours, std::string why = {});
  Entries& at_most(std::string quantity, std::string_view published, std::string unit, double ours,
                   std::string why = {});
  /// Ours differs by more than a twentieth.
  Entries& contradicted(std::string quantity, std::string_view published, std::string unit, double ours,
                        std::string why);
  Entries& not_derivable(std::string quantity, std::string_view published, std::string unit, std::string why);

  const Check& last() const { return checks_.back(); }
  std::vector<Check> take() { return std::move(checks_); }

 private:
  Entries& add(Status expected, std::string quantity, std::string_view published, std::string unit,
               double ours, std::string why, double tolerance);

  Evidence evidence_;
  Subject subject_ = Subject::bytes;
  std::vector<Check> checks_{};
};

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
