// LHD: of some blocks drawn at random, the one that is expected to hit least for the time that it will stay.
#include <algorithm>
#include <bit>

#include "policies/api/replacement.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::lhd {
namespace {

/// Ages are counted in steps of a power of two accesses, the first that is not less than a two-hundredth of
/// the capacity. Blocks of the last step or older ones are all alike, and leave before any other.
constexpr std::uint32_t kAges = 20000, kStepsPerCapacity = 200, kAgeClasses = 16, kMaxApps = 16;
/// An access makes a block an explorer with a chance of 1 / kExplorers, while their room lasts and in the
/// first periods.
constexpr std::uint64_t kExplorers = 32, kExploringPeriods = 50;
/// Below this, what a class has seen is forgotten.
constexpr double kFewEvents = 1e-5;

struct LhdSettings {
  std::size_t sample = 0, recent = 0;
  std::uint64_t period = 0, seed = 0;
  double decay = 0, explore = 0;
};

class Lhd final : public Replacement {
 public:
  Lhd(const BlockSpace& space, const LhdSettings& with)
      : with_(with),
        tags_(space.blocks),
        apps_(static_cast<std::uint32_t>(std::clamp<std::size_t>(space.categories, 1, kMaxApps))),
        classes_(std::size_t{apps_} * kAgeClasses),
        recent_(with.recent, kNoBlock),
        explorers_(static_cast<std::int64_t>(with.explore * static_cast<double>(space.capacity))),
        draws_(combine({key_of("lhd"), with.seed})) {
    const std::uint64_t steps = (space.capacity + kStepsPerCapacity - 1) / kStepsPerCapacity;
    shift_ = static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(steps, 1) - 1));
    resident_.reserve(std::min(space.blocks, space.capacity));
  }

  void start(const RequestView& request, BlockStore&) override {
    app_ = request.category == kNever ? 0 : static_cast<std::uint8_t>(request.category % apps_);
  }
  void hit(Block block, BlockStore&) override {
    Tag& tag = tags_[block];
    const std::uint16_t age = age_of(tag);
    ++counts(tag, age).hits[age];
    if (tag.explorer) ++explorers_;
    tag.age_before = tag.age_at_hit;
    tag.age_at_hit = age;
    use(tag);
    accessed();
  }
  void miss(Block block, BlockStore& store) override {
    if (store.full()) evict(store);
    Tag& tag = tags_[block];
    tag.place = static_cast<std::uint32_t>(resident_.size());
    tag.age_at_hit = 0;
    tag.age_before = kAges;
    resident_.push_back(block);
    const bool explores = use(tag);
    if (!explores && !recent_.empty() && density(tag) < victims_density_)
      recent_[next_recent_++ % recent_.size()] = block;
    store.store(block);
    accessed();
  }
  void evict(BlockStore& store) override { leave(choose(store), store); }

 private:
  struct Tag {
    std::uint64_t used = 0;   ///< accesses before its last one
    std::uint32_t place = 0;  ///< in resident_
    std::uint16_t age_at_hit = 0, age_before = 0;
    std::uint8_t app = 0;
    bool explorer = false;
  };
  /// What became of its blocks, by age, and what follows from it. Ages that never occurred are left out.
  struct Class {
    std::vector<double> hits{}, evictions{}, densities{};
  };

  std::uint16_t age_of(const Tag& tag) const {
    return static_cast<std::uint16_t>(std::min<std::uint64_t>((accesses_ - tag.used) >> shift_, kAges - 1));
  }
  /// By the ages of the last two hits: the shorter, the higher; 0 for blocks that were never hit.
  static std::uint32_t age_class(const Tag& tag) {
    std::uint32_t age = std::uint32_t{tag.age_at_hit} + tag.age_before, out = 0;
    if (age == 0) return kAgeClasses - 1;
    for (; age < kAges && out < kAgeClasses - 1; age *= 2) ++out;
    return out;
  }
  Class& class_of(const Tag& tag) { return classes_[std::size_t{tag.app} * kAgeClasses + age_class(tag)]; }
  Class& counts(const Tag& tag, std::uint16_t age) {
    Class& of = class_of(tag);
    if (age >= of.hits.size()) {
      of.hits.resize(age + std::size_t{1}, 0);
      of.evictions.resize(age + std::size_t{1}, 0);
    }
    return of;
  }
  double density(const Tag& tag) {
    const std::uint16_t age = age_of(tag);
    if (age == kAges - 1) return -1;
    const Class& of = class_of(tag);
    double out = 0;
    if (periods_ == 0)
      out = (age_class(tag) + 1.0) / (age + 1.0);
    else if (age < of.densities.size())
      out = of.densities[age];
    return out + (tag.explorer ? 1 : 0);
  }

  /// Returns whether the access was drawn to explore, with room for it or not.
  bool use(Tag& tag) {
    const bool drawn = draw(kExplorers) == 0;
    tag.used = accesses_;
    tag.app = app_;
    tag.explorer = drawn && explorers_ > 0 && periods_ < kExploringPeriods;
    if (tag.explorer) --explorers_;
    return drawn;
  }
  void accessed() {
    if (++accesses_ % with_.period == 0) reconfigure();
  }
  std::size_t draw(std::size_t below) {
    return static_cast<std::size_t>(uniform01(draws_++) * static_cast<double>(below));
  }

  Block choose(const BlockStore& store) {
    Block best = kNoBlock;
    double least = 0;
    const auto consider = [&](Block block) {
      if (store.pinned(block)) return;
      const double value = density(tags_[block]);
      if (best != kNoBlock && value >= least) return;
      best = block;
      least = value;
    };
    std::size_t at = 0;
    for (std::size_t i = 0; i < with_.sample; ++i) consider(resident_[at = draw(resident_.size())]);
    for (const Block block : recent_)
      if (block != kNoBlock && store.known(block)) consider(block);
    // All that were drawn are pinned: the next that is not.
    while (best == kNoBlock) consider(resident_[at = (at + 1) % resident_.size()]);
    if (least >= 0) victims_density_ = with_.decay * victims_density_ + (1 - with_.decay) * least;
    return best;
  }
  void leave(Block block, BlockStore& store) {
    const Tag& tag = tags_[block];
    const std::uint16_t age = age_of(tag);
    ++counts(tag, age).evictions[age];
    if (tag.explorer) ++explorers_;
    resident_[tag.place] = resident_.back();
    tags_[resident_.back()].place = tag.place;
    resident_.pop_back();
    store.evict(block);
  }

  /// The hit density at an age: the hits at this age and later ones over all the time that blocks of this age
  /// stayed on, until they were hit or evicted.
  void reconfigure() {
    ++periods_;
    for (Class& of : classes_) {
      of.densities.assign(of.hits.size(), 0);
      double hits = 0, events = 0, time = 0;
      for (std::size_t age = of.hits.size(); age-- > 0;) {
        hits += of.hits[age] *= with_.decay;
        events += of.hits[age] + (of.evictions[age] *= with_.decay);
        time += events;
        if (events > kFewEvents) of.densities[age] = hits / time;
      }
    }
  }

  LhdSettings with_;
  std::vector<Tag> tags_;
  std::vector<Block> resident_{};  ///< in no order, to draw from
  std::uint32_t apps_;
  std::vector<Class> classes_;
  std::vector<Block> recent_;  ///< new blocks that look worse than what leaves on average
  std::size_t next_recent_ = 0;
  std::int64_t explorers_;  ///< how many more there may be
  std::uint64_t draws_, accesses_ = 0, periods_ = 0;
  double victims_density_ = 0;
  unsigned shift_ = 0;  ///< of accesses to steps of age
  std::uint8_t app_ = 0;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "lhd",
      .summary =
          "of some blocks drawn at random evicts the one of least hit density: expected hits over expected "
          "time in the cache",
      .paper =
          "Beckmann, Chen, Cidon, LHD: Improving Cache Hit Rate by Maximizing Hit Density, NSDI 2018, "
          "https://www.usenix.org/conference/nsdi18/presentation/beckmann",
      .details =
          "Time is accesses to blocks. Blocks are of one class whose last two hits came after about the same "
          "times and whose last request was of the same category. Of every class it is counted how many "
          "blocks were hit and how many evicted at which age; every `period` accesses the counts are "
          "multiplied by `decay` and the hit density at each age follows: all hits from this age on, over "
          "the sum of the times that blocks of this age stayed on. Until the first period is over, it is "
          "(class + 1) / (age + 1). `sample` draws from the resident blocks, and the last `recent` new ones "
          "whose density was below the mean of those evicted, are compared; of equal ones the first leaves. "
          "Of all accesses 1/32 make a block an explorer, which others leave before, while explorers hold "
          "less than `explore` of the capacity and during 50 periods.",
      .departures =
          {{"the paper's text beyond its abstract was not at hand",
            "the rule is that of the authors' code, https://github.com/CMU-CORGI/LHD"},
           {"code: a period is 2^20 accesses, more than public traces of prompts have",
            "16,384; period=1048576"},
           {"code: samples 8 during the first 50 periods, so that short traces warm up",
            "32 from the beginning"},
           {"code: the size of a step of age is found in the 6th and the 26th period, from 2^10 accesses on, "
            "by how many objects the cache had",
            "blocks are of one size: it follows from the capacity, and counts need not be rescaled"},
           {"code: before the end of the first period a density grows with the number of the application, "
            "too",
            "with the class of ages alone"},
           {"code: applications of a key-value cache",
            "categories of requests; beyond 16, modulo 16 as there"},
           {"code: an object older than all ages is evicted first, and spoils the mean density of those "
            "evicted",
            "evicted first, and left out of the mean"},
           {"code: nothing is pinned",
            "pinned blocks are not compared; where all that were drawn are pinned, "
            "the next one that is not leaves"}},
      .params = {count_param("sample", "32", {1, 1 << 16}, "how many are drawn to compare", "blocks"),
                 count_param("recent", "8", {0, 1 << 16},
                             "how many new ones of low density are compared, too", "blocks"),
                 count_param("period", "16384", {1, 1e15},
                             "after which densities follow from what was counted", "accesses"),
                 share_param("decay", "0.9", "of counts, after each period"),
                 share_param(
                     "explore", "0.01",
                     "share of the capacity for blocks that stay to see how long until they are used"),
                 count_param("seed", "0", {0, 1e15}, "of the draws")},
      .randomised = true,
      .rule = ReplacementRule{.make = [](const Params& params, const BlockSpace& space) {
        return std::make_unique<Lhd>(space, LhdSettings{.sample = params.count("sample"),
                                                        .recent = params.count("recent"),
                                                        .period = params.count("period"),
                                                        .seed = params.count("seed"),
                                                        .decay = params.share("decay"),
                                                        .explore = params.share("explore")});
      }}};
}

}  // namespace kvsim::policy::lhd
