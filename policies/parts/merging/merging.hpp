#pragma once
/// Merges tokens that an eviction drops into tokens that stay.
///
/// A token that leaves joins, in each lane, the nearest of the tokens that stay, unless a gate lets it go.
/// What stays becomes the weighted mean of itself and of what joins it. Tokens leave when the prompt is cut,
/// all at once, and later whenever the eviction names victims.
///
/// Where several keys become one, their weight in the softmax is lost. Repairs (`mass`): the value times the
/// number c of tokens that the row stands for, or log c added to its logit, which for equal keys is exact.
/// With either, a row that stands for c tokens counts as c of them when it is merged again, and c is stored
/// in 16 bits per row and lane; a row stands for 65,535 tokens at most.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/representation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/codes/row_codec.hpp"

namespace kvsim::policy {

// Which of the tokens that stay is nearest to one that leaves.

/// Keys of one lane as unit vectors, for many cosines.
class UnitRows {
 public:
  /// `rows`: those of `keys` that are taken. A key of length 0 stays 0: its cosine with every other is 0.
  UnitRows(MatrixView keys, std::span<const std::size_t> rows);

  std::size_t size() const { return dim_ == 0 ? 0 : numbers_.size() / dim_; }
  /// From -1 to 1. Equal keys give equal bits, wherever they stand.
  double cosine(std::size_t row, const UnitRows& other, std::size_t other_row) const;

 private:
  std::size_t dim_;
  std::vector<float> numbers_;
};

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

struct Nearest {
  std::size_t index = 0;  ///< among those that stay; kNowhere: none is near
  double cosine = 0;
};

/// Per row of `leaving`, the row of `staying` with the largest cosine; of equal ones the first. `staying` has
/// at least one row.
std::vector<Nearest> nearest_by_cosine(const UnitRows& leaving, const UnitRows& staying);

/// The same with the largest product of the cosines of keys and of values, among those whose keys have a
/// positive cosine; kNowhere where there is none. `cosine` is that product.
std::vector<Nearest> nearest_by_product(const UnitRows& leaving_keys, const UnitRows& staying_keys,
                                        const UnitRows& leaving_values, const UnitRows& staying_values);

/// Per position that leaves, the index of the position that stays with the least distance; of two the
/// earlier. `staying` has at least one, in any order.
std::vector<std::size_t> nearest_by_position(std::span<const Position> leaving,
                                             std::span<const Position> staying);

/// The same among positions of the same run, kNowhere where its run has none that stays. `run_of`: per
/// position, in ascending order.
std::vector<std::size_t> nearest_in_run(std::span<const Position> leaving, std::span<const Position> staying,
                                        std::span<const std::size_t> run_of);

/// Per row of `keys`, the number of its run: a row is in the run of the one before it if their cosine is
/// above `above`.
std::vector<std::size_t> runs_of(MatrixView keys, double above);

struct MergeRule {
  /// By the cosine of keys, by position, or by position among the tokens of the same run: successive tokens
  /// of the prompt of which each two neighbours have a cosine above `run_above`. A run without a token that
  /// stays is dropped. Or by the product of the cosines of keys and values, where that of the keys is
  /// positive; what has no such token is dropped.
  enum class Nearest { cosine, position, run, product };
  /// - everything: all that leaves is merged
  /// - fixed: what has a cosine of at least tau with the nearest
  /// - mean: of what leaves together, what has at least the mean cosine
  /// - moving: at least tau, which begins as the mean cosine of the first that leave and at each later
  ///   eviction first goes the share `rate` of the way to the mean cosine of those that leave then
  /// The cosine of a token is the mean over the lanes of the unit.
  /// - lane: what has a cosine, or product, of at least tau with the nearest in its own lane
  enum class Gate { everything, fixed, mean, moving, lane };
  /// Of what stays and of each of the k tokens that join it:
  /// - equal: 1 and 1
  /// - cosine: 1 and the cosine, divided by the number of tokens, not by the sum of the weights
  /// - exponential: e and exp(cosine)
  /// - pivotal: 1 + k/2 and 1/2, as if each were first averaged with what stays and all of those with it then
  /// - gaussian: 1 and exp(-d^2 / (2 sigma^2)) at a distance d of the keys
  /// - score: their scores in the prompt, with decode = false only; where all are 0, nothing is merged
  enum class Weights { equal, cosine, exponential, pivotal, gaussian, score };
  enum class Mass { none, count, log };
  enum class Target { both, keys, values };

  Nearest nearest = Nearest::cosine;
  Gate gate = Gate::everything;
  double tau = 0, rate = 0;
  double run_above = 0;  ///< with Nearest::run, which goes with decode = false only
  Weights weights = Weights::equal;
  double sigma = 1;
  Mass mass = Mass::none;
  Target target = Target::both;
  /// With scores: as many tokens as this times those that stay are merged or stay, the best of those that
  /// leave; all others are dropped. 0: none is.
  double candidates = 0;
  bool decode = true;  ///< false: only when the prompt is cut; what leaves later is dropped
};

/// Of every token that is held, however much was merged into it.
Ledger merging_ledger(const MergeRule& rule, const StorageShape& shape, std::uint64_t tokens);

Cost merging_cost(const MergeRule& rule, const CostShape& shape);

class MergingCodec final : public Codec {
 public:
  /// `scores`: [lanes][prompt], where the rule asks for them.
  explicit MergingCodec(const MergeRule& rule, const std::vector<std::vector<double>>* scores = nullptr)
      : rule_(rule), scores_(scores) {}

  void begin(const Prompt& prompt, CacheRows& rows) override;
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> behind) override;
  void join(std::size_t own_slot, CacheRows& rows) override;
  Ledger ledger(const CacheRows& rows) const override {
    return merging_ledger(rule_, rows.shape(), rows.slots());
  }

 private:
  struct Lane {
    MatrixView keys, values;                 ///< of what leaves
    std::span<const std::uint16_t> stand{};  ///< per row of them, how many tokens it stands for; empty: 1
    std::size_t stand_stride = 1;
  };
  /// Rows `leaving` of `lanes`, at these positions, go into the slots `staying`.
  void merge(std::span<const Lane> lanes, std::span<const std::size_t> leaving,
             std::span<const Position> positions, std::span<const std::size_t> staying, CacheRows& rows);
  /// `cosine`: over the lanes, `own`: of one lane.
  bool passes(double cosine, double own, double mean) const;
  double score(std::size_t lane, Position position) const {
    return (*scores_)[lane][static_cast<std::size_t>(position) - first_];
  }
  /// Drops those of what leaves that are no candidates.
  void drop_worst(std::size_t lane, std::span<const Position> positions, std::size_t staying,
                  std::vector<Nearest>& nearest) const;
  struct Joining {
    std::size_t row;  ///< of Lane::keys
    double cosine;
    double score = 0;
  };
  void write(std::size_t lane, std::size_t slot, const Lane& from, std::span<const Joining> joining,
             CacheRows& rows);
  std::uint16_t& stands_for(std::size_t lane, std::size_t slot, const CacheRows& rows) {
    return stands_for_[slot * rows.shape().n_lanes + lane];
  }

  MergeRule rule_;
  std::size_t first_ = 0;  ///< position of the prompt's first row
  const std::vector<std::vector<double>>* scores_;
  std::vector<std::uint16_t>
      stands_for_;      ///< [slots][lanes]: of how many tokens a row is made; without mass 1
  bool begun_ = false;  ///< tau has a value
  double tau_ = 0;
};

using MergingRepresentation = PlainRepresentation<MergingCodec, MergeRule>;

// Parameters that merges share.
ParamSpec mass_param(const char* fallback = "none");
ParamSpec target_param();

/// The spec of a merge: `spec` says what it is called, what it does and its parameters, the two above among
/// them; `rule` reads the others.
PolicySpec merging_spec(PolicySpec spec, MergeRule (*rule)(const Params& params));
/// The same of a merge that learns of the prompt: `make` takes the whole rule.
PolicySpec merging_spec(PolicySpec spec, MergeRule (*rule)(const Params& params),
                        std::unique_ptr<Representation> (*make)(const Params& params, const CacheUnit& unit,
                                                                const MergeRule& rule));

}  // namespace kvsim::policy
