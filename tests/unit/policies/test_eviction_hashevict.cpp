#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_eviction_hashevict {

using Positions = std::vector<Position>;

namespace {

/// Keys and queries on one line through the origin, each given by its sign. Equal signs hash alike, opposite
/// ones differ in every bit, whatever the projection.
Run run_on_a_line(std::size_t prompt, const std::string& keys, const std::string& queries) {
  Run run = blank_run({.prompt = prompt, .decode = keys.size() - prompt, .n_lanes = 1, .group = 1});
  const auto dim = static_cast<std::size_t>(run.unit.head_dim);
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t c = 0; c < dim; ++c) {
      const float component = static_cast<float>(c) + 0.5F;
      run.keys[0][i * dim + c] = keys[i] == '+' ? component : -component;
      run.queries[0][i * dim + c] = queries[i] == '+' ? component : -component;
    }
  return run;
}

/// Keys and queries all around the origin.
Run round_run(const Shape& shape, std::uint64_t seed, int levels = 1000000) {
  Run run = random_run(shape, seed, levels);
  for (auto* tensor : {&run.keys, &run.queries})
    for (std::vector<float>& rows : *tensor)
      for (float& x : rows) x -= 0.5F;
  run.unit.seed = seed;
  run.unit.layer = 3;
  run.unit.first_kv_head = 2;
  return run;
}

struct Variant {
  std::size_t bits = 16, sinks = 0, window = 1;
  std::string hash = "query", projection = "head", group = "mean", prompt = "stream", tie = "slot";
  std::string text() const {
    return "hashevict(bits=" + std::to_string(bits) + ",hash=" + hash + ",projection=" + projection +
           ",group=" + group + ",prompt=" + prompt + ",sinks=" + std::to_string(sinks) +
           ",window=" + std::to_string(window) + ",tie=" + tie + ")";
  }
};

/// Algorithm 1 as printed: a table of bit strings, compared bit by bit; every key is hashed again at every
/// step.
class SlowHashEvict {
 public:
  SlowHashEvict(const Variant& variant, const Run& run, std::size_t budget)
      : v_(variant), run_(run), budget_(budget) {}

  Fed feed() {
    Fed out;
    std::size_t next = 0;
    if (v_.prompt == "window" && run_.prompt > budget_) {
      for (std::size_t j = 0; j < run_.prompt; ++j)
        if (j < v_.sinks || j + budget_ >= run_.prompt + v_.sinks) slots_.push_back(static_cast<Position>(j));
      next = run_.prompt;
    }
    for (; next < run_.prompt; ++next) arrive(next);
    out.kept = sorted();
    for (; next < run_.length(); ++next) {
      arrive(next);
      out.held.push_back(sorted());
    }
    return out;
  }

 private:
  Positions sorted() const {
    Positions out = slots_;
    std::sort(out.begin(), out.end());
    return out;
  }

  std::vector<bool> hashed(const std::vector<double>& x) const {
    std::vector<bool> bits;
    for (std::size_t b = 0; b < v_.bits; ++b) {
      double sum = 0;
      for (std::size_t c = 0; c < x.size(); ++c) {
        const std::uint64_t key = v_.projection == "head"
                                      ? combine({run_.unit.seed, key_of("hashevict"), 3, 2})
                                      : combine({run_.unit.seed, key_of("hashevict"), 3});
        sum += x[c] * normal(combine({key, b, c}));
      }
      bits.push_back(sum >= 0);
    }
    return bits;
  }

  static std::vector<double> row(const std::vector<float>& tensor, std::size_t i) {
    return {tensor.begin() + static_cast<std::ptrdiff_t>(i * 3),
            tensor.begin() + static_cast<std::ptrdiff_t>(i * 3 + 3)};
  }

  static int hamming(const std::vector<bool>& a, const std::vector<bool>& b) {
    int distance = 0;
    for (std::size_t i = 0; i < a.size(); ++i) distance += a[i] != b[i] ? 1 : 0;
    return distance;
  }

  int distance(std::size_t query, Position held) const {
    const std::vector<bool> key = hashed(row(run_.keys[0], static_cast<std::size_t>(held)));
    if (v_.hash == "key") return hamming(hashed(row(run_.keys[0], query)), key);
    std::vector<double> mean(3);
    int sum = 0, nearest = 1000;
    for (const std::vector<float>& head : run_.queries) {
      const std::vector<double> q = row(head, query);
      for (std::size_t c = 0; c < 3; ++c) mean[c] += q[c];
      sum += hamming(hashed(q), key);
      nearest = std::min(nearest, hamming(hashed(q), key));
    }
    return v_.group == "mean" ? sum : v_.group == "max" ? nearest : hamming(hashed(mean), key);
  }

  void arrive(std::size_t query) {
    const auto position = static_cast<Position>(query);
    if (slots_.size() < budget_) {
      slots_.push_back(position);
      return;
    }
    std::size_t victim = slots_.size();
    int most = -1;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const Position held = slots_[slot];
      if (held < static_cast<Position>(v_.sinks)) continue;
      if (held > position - static_cast<Position>(v_.window)) continue;
      const int d = distance(query, held);
      const bool tied_and_preferred = d == most && ((v_.tie == "oldest" && held < slots_[victim]) ||
                                                    (v_.tie == "newest" && held > slots_[victim]));
      if (d <= most && !tied_and_preferred) continue;
      victim = slot;
      most = d;
    }
    slots_[victim] = position;
  }

  Variant v_;
  const Run& run_;
  std::size_t budget_;
  Positions slots_;
};

void compare(const Variant& variant, const Run& run, std::size_t budget) {
  CAPTURE(variant.text(), run.unit.seed, run.prompt, budget);
  const Fed slow = SlowHashEvict(variant, run, budget).feed(), fast = feed(variant.text(), run, budget);
  CHECK(fast.kept == slow.kept);
  CHECK(fast.held == slow.held);
}

}  // namespace

TEST_CASE("hashevict evicts the key opposite the query, worked by hand") {
  const Run run = run_on_a_line(4, "+-+-+-", "++++--");
  // Budget 3: 0, 1, 2 fill the slots. Query 3 is +: the only - is 1, and 3 takes its slot: [0 3 2].
  // Query 4 is -: the + are 0 and 2, slot 0 comes first: [4 3 2]. Query 5 is -: + are 4 and 2; 4 sits in slot
  // 0: [5 3 2].
  const std::string base = "hashevict(sinks=0,window=1";
  CHECK(feed(base + ")", run, 3).kept == Positions{0, 2, 3});
  CHECK(feed(base + ")", run, 3).held == std::vector<Positions>{{2, 3, 4}, {2, 3, 5}});
  // By age instead: of 4 and 2 the older is evicted; the newest of 0 and 2, then of 0 and 4.
  CHECK(feed(base + ",tie=oldest)", run, 3).held == std::vector<Positions>{{2, 3, 4}, {3, 4, 5}});
  CHECK(feed(base + ",tie=newest)", run, 3).held == std::vector<Positions>{{0, 3, 4}, {0, 3, 5}});
  // Key against keys: key 3 is -, the + are 0 and 2, 0 is evicted: [3 1 2]. Key 4 is +: 3 is evicted: [4 1
  // 2]. Key 5 is -: 4 is evicted.
  CHECK(feed(base + ",hash=key)", run, 3).kept == Positions{1, 2, 3});
  CHECK(feed(base + ",hash=key)", run, 3).held == std::vector<Positions>{{1, 2, 4}, {1, 2, 5}});
  // The prompt cut to one sink and the last two: [0 2 3]. Query 4 is -: 2 is the only + but the sink.
  CHECK(feed("hashevict(sinks=1,window=1,prompt=window)", run, 3).kept == Positions{0, 2, 3});
  CHECK(feed("hashevict(sinks=1,window=1,prompt=window)", run, 3).held[0] == Positions{0, 3, 4});
}

TEST_CASE("the first four and last ten are kept, the arriving token among them") {
  const Run run = run_on_a_line(20, std::string(30, '-'), std::string(30, '+'));
  // All keys are equally far, so slots decide: with 16 slots, position 16 may drop 4, 5 or 6 (7 .. 15
  // and itself are the last ten) and takes the slot of 4; position 17 may drop 5, 6, 7.
  CHECK(feed("hashevict", run, 16).kept ==
        Positions{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  // The least budget has one slot to give, the oldest outside the sinks.
  CHECK(feed("hashevict", run, 14).held == feed("streaming_llm(sinks=4)", run, 14).held);
  CHECK(parse_composition("hashevict", builtin()).floor() == 14);
  CHECK(parse_composition("hashevict.code", builtin()).floor() == 15);
}

TEST_CASE("hashevict agrees with Algorithm 1") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const int group = 1 + static_cast<int>(seed % 3);
    const Run run =
        round_run({.prompt = seed % 4 == 3 ? 1 : 4 + seed, .decode = 10, .n_lanes = 1, .group = group}, seed,
                  seed % 2 == 0 ? 1000000 : 3);
    for (const std::size_t budget : {3U, 4U, 7U, 12U, 40U}) {
      Variant variant;
      variant.sinks = seed % 3;
      compare(variant, run, budget);
      for (const std::size_t bits : {1U, 4U, 8U, 23U, 64U}) {
        variant.bits = bits;
        compare(variant, run, budget);
      }
      variant.bits = 4;  // ties
      for (const char* tie : {"slot", "oldest", "newest"}) {
        variant.tie = tie;
        for (const char* hash : {"query", "key"}) {
          variant.hash = hash;
          compare(variant, run, budget);
        }
        variant.hash = "query";
        for (const char* groups : {"max", "mean_query", "mean"}) {
          variant.group = groups;
          compare(variant, run, budget);
        }
      }
      variant.projection = "layer";
      compare(variant, run, budget);
      variant.prompt = "window";
      compare(variant, run, budget);
    }
  }
}

TEST_CASE("hashing keys ignores the queries") {
  const Shape shape{.prompt = 40, .decode = 20, .n_lanes = 1, .group = 4};
  const Run run = round_run(shape, 1);
  Run other = run;
  other.queries = round_run(shape, 2).queries;
  for (const char* policy : {"hashevict(hash=key)", "hashevict.code"}) {
    CHECK(feed(policy, run, 20).held == feed(policy, other, 20).held);
    CHECK_FALSE(parse_composition(policy, builtin()).eviction.needs().queries);
  }
  CHECK(feed("hashevict", run, 20).held != feed("hashevict", other, 20).held);
  CHECK(parse_composition("hashevict", builtin()).eviction.needs().queries);
}

TEST_CASE("a key that points where the query points is evicted only when every other key does") {
  Run run = run_on_a_line(12, "+-+-+-+-+-+-+++-+-+-", "++++++++++++++++++++");
  const Fed fed = feed("hashevict(sinks=0,window=1)", run, 6);
  // More than five keys are +, so at the end every resident key is + except the newest.
  Positions plus;
  for (const Position j : fed.held.back())
    if (run.keys[0][static_cast<std::size_t>(j) * 3] > 0) plus.push_back(j);
  CHECK(plus.size() == 5);
}

TEST_CASE("with equal keys, evicting the oldest gives attention sinks and a window") {
  const Run run = blank_run({.prompt = 30, .decode = 12});
  for (std::size_t budget = 14; budget < 45; ++budget)
    for (const char* prompt : {"stream", "window"})
      CHECK(feed(std::string("hashevict(tie=oldest,prompt=") + prompt + ")", run, budget).held ==
            feed("streaming_llm(sinks=4)", run, budget).held);
}

TEST_CASE("the projection follows from the run's seed, the layer and, unless shared, the head") {
  Run run = round_run({.prompt = 60, .decode = 10}, 4);
  const auto held = [&](const char* policy) { return feed(policy, run, 20).held; };
  const auto head = held("hashevict"), layer = held("hashevict(projection=layer)");
  CHECK(held("hashevict") == head);
  run.unit.first_kv_head += 1;
  CHECK(held("hashevict") != head);
  CHECK(held("hashevict(projection=layer)") == layer);
  run.unit.layer += 1;
  CHECK(held("hashevict(projection=layer)") != layer);
  run.unit.layer -= 1;
  run.unit.seed += 1;
  CHECK(held("hashevict(projection=layer)") != layer);
}

}  // namespace kvsim::policy::test::test_eviction_hashevict
