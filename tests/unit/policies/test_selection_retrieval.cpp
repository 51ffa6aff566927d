// RetrievalAttention.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_retrieval {

TEST_CASE("retrieval: a worked example", "[retrieval]") {
  // The first token, the last two of the prompt and what is new are read; of the keys 1 .. 4 those of the two
  // largest products with the query.
  SelectedShape shape{
      .selection = "retrieval(read=2,sinks=1,recent=2,index=flat)", .prompt = 7, .dim = 1, .length = 9};
  shape.keys = {0, 3, -8, 4, 5, 0, 0, 0, 0};
  shape.queries = {0, 0, 0, 0, 0, 0, 0, 1, -1};
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 3, 4, 5, 6, 7});
  CHECK(cache.index_bits_read() == 4 * 16);
  CHECK(cache.index_bits() == 0);
  cache.append({3});  // the key 4 leaves
  CHECK(cache.read() == std::set<Position>{0, 1, 2, 5, 6, 7, 8});
}

TEST_CASE("retrieval: any index finds all where it may look at all, whatever is evicted", "[retrieval]") {
  for (const std::string index :
       {"index=flat", "index=ivf,probes=100%", "index=graph,beam=200", "index=query_graph,beam=200"})
    for (const std::size_t every : {1, 2}) {
      INFO(index);
      SelectedCache cache({.selection = "retrieval(read=9,sinks=5,recent=11," + index + ")",
                           .prompt = 150,
                           .n_lanes = 2,
                           .dim = 9,
                           .group = 3,
                           .every = every});
      const std::vector<Position> held = cache.slots();
      const std::set<Position> inner(held.begin() + 5, held.end() - 11);
      for (std::size_t step = 1; step <= 40; ++step) {
        std::vector<std::size_t> victims;
        if (step >= 10) victims = {(step * 7) % cache.slots().size()};
        if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
        cache.append(victims);
        for (std::size_t head = 0; head < 6; ++head) {
          std::vector<std::pair<double, Position>> found;
          std::set<Position> expected;
          for (const Position position : cache.slots()) {
            if (inner.contains(position))
              found.emplace_back(cache.logit(cache.position(), static_cast<std::size_t>(position), head),
                                 position);
            else
              expected.insert(position);
          }
          std::sort(found.rbegin(), found.rend());
          for (std::size_t i = 0; i < std::min<std::size_t>(9, found.size()); ++i)
            expected.insert(found[i].second);
          CHECK(cache.read(head) == expected);
        }
      }
    }
}

TEST_CASE("retrieval: limits", "[retrieval]") {
  SelectedCache all({.selection = "retrieval(read=100%)", .prompt = 700, .length = 710});
  all.append();
  CHECK(all.read().size() == 701);
  CHECK(all.index_bits_read() == 0);
  SelectedCache dense({.selection = "retrieval(read=2,dense=6)", .prompt = 700, .length = 710});
  dense.append();
  CHECK(dense.read().size() == 701);
  CHECK(dense.index_bits() == 0);
  // Nothing is left for the index.
  SelectedCache few({.selection = "retrieval(read=1)", .prompt = 640, .length = 650});
  few.append();
  CHECK(few.read().size() == 641);
  CHECK(few.index_bits() == 0);
}

TEST_CASE("retrieval: what it says that it reads", "[retrieval]") {
  const CostShape shape{
      .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 500};
  for (const std::string index : {"flat", "ivf,probes=100%", "ivf", "graph", "query_graph"}) {
    INFO(index);
    SelectedCache cache(
        {.selection = "retrieval(read=10,sinks=20,recent=30,beam=12,degree=4,index=" + index + ")",
         .prompt = 500,
         .n_lanes = 2,
         .group = 2});
    for (int step = 0; step < 9; ++step) cache.append();
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    for (std::size_t head = 0; head < 4; ++head)
      CHECK(static_cast<double>(cache.read(head).size()) == count.head_tokens);
    CHECK(count.lane_tokens == 20 + 30 + 9 + 2 * 10);
    const auto bits = static_cast<double>(cache.index_bits()),
               read = static_cast<double>(cache.index_bits_read());
    if (index == "query_graph")
      CHECK(bits <= 8 * count.index_bytes);
    else
      CHECK(bits == 8 * count.index_bytes);
    if (index == "flat" || index == "ivf,probes=100%")
      CHECK(read == 8 * count.index_bytes_read);
    else if (index != "ivf")  // whose lists differ in length
      CHECK(read <= 8 * count.index_bytes_read);
    CHECK(read > 0);
  }
}

TEST_CASE("retrieval: the presets, and what stays on the device of Llama-3.1-8B", "[retrieval]") {
  const CostShape shape{
      .n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128, .prompt = 131072};
  const Composition paper = parse_composition("retrieval_attention", builtin());
  const ReadCount reads = paper.selection->reads(shape, 0, 131072);
  // 640 tokens of 128 KiB are 83.9 MB; a hundred more are found by each query head.
  CHECK((reads.head_tokens - 100) * 131072 == 83886080);
  const Composition code = parse_composition("retrieval_attention.minference", builtin());
  CHECK(code.selection->reads(shape, 0, 131072).head_tokens == 2640);
  // All keys of the index are looked at, 2 bytes each, once for the query heads of a KV head.
  CHECK(code.selection->reads(shape, 0, 131072).index_bytes_read == (131072 - 640) * 8 * 128 * 2.0);
}

}  // namespace kvsim::policy::test::test_selection_retrieval
