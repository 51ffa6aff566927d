// Indexes of keys.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "policies/parts/index/key_index.hpp"

namespace kvsim::policy::test_key_index {

namespace {

using Set = std::set<std::size_t>;

std::vector<float> noise(std::size_t numbers, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(numbers);
  for (float& x : out) x = normal(random);
  return out;
}

MatrixView view(const std::vector<float>& numbers, std::size_t dim) {
  return {numbers.data(), numbers.size() / dim, dim, dim};
}

struct Found {
  Set keys{}, looked_at{};
};
Found search(KeyIndex& index, std::span<const float> query, std::size_t keys, std::size_t count) {
  std::vector<char> looked_at(keys);
  std::vector<std::size_t> out;
  index.search(query, count, looked_at, out);
  Found found{{out.begin(), out.end()}, {}};
  REQUIRE(found.keys.size() == out.size());
  for (std::size_t i = 0; i < keys; ++i)
    if (looked_at[i] != 0) found.looked_at.insert(i);
  return found;
}

/// The `count` keys of `among` with the largest products, in double precision.
Set best(const std::vector<float>& keys, std::span<const float> query, const Set& among, std::size_t count) {
  std::vector<std::pair<double, std::size_t>> products;
  for (const std::size_t i : among) {
    double sum = 0;
    for (std::size_t c = 0; c < query.size(); ++c)
      sum += static_cast<double>(query[c]) * static_cast<double>(keys[i * query.size() + c]);
    products.emplace_back(sum, i);
  }
  std::sort(products.rbegin(), products.rend());
  Set out;
  for (std::size_t i = 0; i < std::min(count, products.size()); ++i) out.insert(products[i].second);
  return out;
}

constexpr IndexKind kKinds[] = {IndexKind::flat, IndexKind::ivf, IndexKind::graph, IndexKind::query_graph};

}  // namespace

TEST_CASE("an index finds the best of the keys that it has looked at", "[key_index]") {
  constexpr std::size_t kKeys = 400, kDim = 9;
  const std::vector<float> keys = noise(kKeys * kDim, 1), prompt = noise(200 * kDim, 2),
                           asked = noise(50 * kDim, 3);
  const std::vector<MatrixView> queries{view(prompt, kDim)};
  for (const IndexKind kind : kKinds) {
    INFO(static_cast<int>(kind));
    const IndexRule rule{.kind = kind, .lists = 20, .probes = {.whole = 4}, .degree = 4, .beam = 12};
    const auto index = make_key_index(rule, keys, kDim, queries, 7);
    const auto again = make_key_index(rule, keys, kDim, queries, 7);
    CHECK(index->bits() <= rule.bits(kKeys, kDim));
    Set held;
    for (std::size_t i = 0; i < kKeys; ++i) held.insert(i);
    std::size_t looked_at = 0;
    for (std::size_t row = 0; row < 50; ++row) {
      const std::span<const float> query = view(asked, kDim).row(row);
      if (row >= 25) {
        // The best is removed, over which a graph still leads.
        const std::size_t gone = *best(keys, query, held, 1).begin();
        held.erase(gone);
        index->remove(gone);
        index->remove(gone);
        again->remove(gone);
      }
      const Found found = search(*index, query, kKeys, 10);
      Set among;
      std::ranges::set_intersection(found.looked_at, held, std::inserter(among, among.end()));
      // On the way down to the lowest level HNSW looks at keys that it does not keep in mind.
      if (kind == IndexKind::graph)
        CHECK(std::ranges::includes(among, found.keys));
      else
        CHECK(found.keys == best(keys, query, among, 10));
      const Found same = search(*again, query, kKeys, 10);
      CHECK(same.keys == found.keys);
      CHECK(same.looked_at == found.looked_at);
      looked_at += found.looked_at.size();
    }
    if (kind == IndexKind::flat)
      CHECK(looked_at == 50 * kKeys);
    else
      CHECK(looked_at < 50 * kKeys / 2);
  }
}

TEST_CASE("an index that may look at everything finds the best of all", "[key_index]") {
  constexpr std::size_t kKeys = 300, kDim = 6;
  const std::vector<float> keys = noise(kKeys * kDim, 4), prompt = noise(5 * kDim, 5),
                           asked = noise(20 * kDim, 6);
  const std::vector<MatrixView> queries{view(prompt, kDim)};
  Set all;
  for (std::size_t i = 0; i < kKeys; ++i) all.insert(i);
  for (const IndexKind kind : kKinds) {
    INFO(static_cast<int>(kind));
    const auto index =
        make_key_index({.kind = kind, .lists = 30, .probes = {.share = 1}, .degree = 8, .beam = kKeys}, keys,
                       kDim, queries, 1);
    for (std::size_t row = 0; row < 20; ++row) {
      const std::span<const float> query = view(asked, kDim).row(row);
      const Found found = search(*index, query, kKeys, 12);
      CHECK(found.keys == best(keys, query, all, 12));
      CHECK(found.looked_at.size() == kKeys);
    }
  }
}

TEST_CASE("keys that are no numbers, and a single key", "[key_index]") {
  std::vector<float> keys = noise(64 * 4, 8);
  keys[17] = std::numeric_limits<float>::quiet_NaN();
  keys[90] = std::numeric_limits<float>::infinity();
  const std::vector<float> query = noise(4, 9);
  const std::vector<MatrixView> queries{view(query, 4)};
  for (const IndexKind kind : kKinds) {
    const IndexRule rule{.kind = kind, .probes = {.share = 1}, .degree = 4};
    CHECK(search(*make_key_index(rule, keys, 4, queries, 1), query, 64, 64).keys.size() == 64);
    const std::vector<float> one(keys.begin(), keys.begin() + 4);
    CHECK(search(*make_key_index(rule, one, 4, queries, 1), query, 1, 1).keys == Set{0});
  }
}

TEST_CASE("a graph of queries: a worked example", "[key_index]") {
  // (1,0) is nearest to key 3, then 7; (0,1) to 1, then 5: links 3-7 and 1-5, beside those in the text.
  const std::vector<float> keys{5, 0, 1, 7, 2, 0, 9, 0, 3, 0, 0, 6, 4, 0, 8, 0};
  const std::vector<float> right{1, 0}, up{0, 1};
  const IndexRule rule{.kind = IndexKind::query_graph, .degree = 1, .beam = 1, .neighbours = 2};
  {
    // Both keys are nearest to one query each: a search starts at the later, 3. To the right nothing that is
    // linked with it is better. Upwards, 7 is as good, and of equals the later; from there, 6 is not.
    const std::vector<MatrixView> queries{view(right, 2), view(up, 2)};
    const auto index = make_key_index(rule, keys, 2, queries, 1);
    const Found first = search(*index, right, 8, 1);
    CHECK(first.keys == Set{3});
    CHECK(first.looked_at == Set{2, 3, 4, 7});
    const Found lost = search(*index, up, 8, 1);
    CHECK(lost.keys == Set{7});
    CHECK(lost.looked_at == Set{2, 3, 4, 6, 7});
    // 7 links in the text, of two keys each, and two of queries.
    CHECK(index->bits() == (2 * 7 + 2 * 2) * 32);
  }
  // Two queries upwards: a search starts at 1.
  const std::vector<MatrixView> queries{view(up, 2), view(right, 2), view(up, 2)};
  const Found found = search(*make_key_index(rule, keys, 2, queries, 1), up, 8, 1);
  CHECK(found.keys == Set{1});
  CHECK(found.looked_at == Set{0, 1, 2, 5});
}

TEST_CASE("queries that are unlike keys: a graph made by queries finds more and looks at less",
          "[key_index]") {
  // Keys are far from each other in 24 components, of which queries hardly look at any.
  constexpr std::size_t kKeys = 3000, kDim = 32;
  for (const std::uint32_t seed : {1, 2, 3}) {
    std::vector<float> keys = noise(kKeys * kDim, seed), all = noise(1200 * kDim, seed + 10);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] *= i % kDim < 24 ? 4.0F : 0.5F;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] *= i % kDim < 24 ? 0.02F : 1.0F;
    const std::vector<float> prompt(all.begin(), all.begin() + 1000 * kDim),
        asked(all.begin() + 1000 * kDim, all.end());
    const std::vector<MatrixView> queries{view(prompt, kDim)};
    std::size_t found[2] = {}, looked_at[2] = {};
    for (const bool by_queries : {false, true}) {
      const IndexRule rule{.kind = by_queries ? IndexKind::query_graph : IndexKind::graph,
                           .degree = by_queries ? 30U : 16U,
                           .beam = 100,
                           .neighbours = 16};
      const auto index = make_key_index(rule, keys, kDim, queries, seed);
      const auto exact = make_key_index({}, keys, kDim, {}, seed);
      for (std::size_t row = 0; row < 200; ++row) {
        const std::span<const float> query = view(asked, kDim).row(row);
        const Found near = search(*index, query, kKeys, 10), best_of_all = search(*exact, query, kKeys, 10);
        Set both;
        std::ranges::set_intersection(near.keys, best_of_all.keys, std::inserter(both, both.end()));
        found[by_queries] += both.size();
        looked_at[by_queries] += near.looked_at.size();
      }
    }
    CHECK(found[1] > found[0]);
    CHECK(looked_at[1] < looked_at[0]);
  }
}

}  // namespace kvsim::policy::test_key_index
