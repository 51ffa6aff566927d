#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::test_prefix_tree {

using prefix::kRoot;
using prefix::Node;
using prefix::PrefixTree;
using requests::Request;
using requests::RequestTrace;

namespace {

RequestTrace trace_of(requests::Hashing hashing, const std::vector<std::vector<requests::BlockId>>& prompts) {
  RequestTrace trace{.format = "mooncake", .block_tokens = 16, .hashing = hashing};
  for (const auto& prompt : prompts) {
    Request request{.prompt_tokens = static_cast<std::uint32_t>(16 * prompt.size())};
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(prompt.size());
    request.line = trace.requests.size() + 1;
    trace.blocks.insert(trace.blocks.end(), prompt.begin(), prompt.end());
    trace.requests.push_back(request);
  }
  return trace;
}

std::vector<Node> nodes(std::span<const Node> path) {
  return {path.begin(), path.end()};
}

}  // namespace

TEST_CASE("a tree numbers blocks as they first occur") {
  const PrefixTree tree(trace_of(requests::Hashing::chained, {{7, 8, 9}, {7, 8, 5}, {6}, {7, 8, 9, 1}}));
  CHECK(tree.size() == 6);
  CHECK(nodes(tree.prompt(0)) == std::vector<Node>{0, 1, 2});
  CHECK(nodes(tree.prompt(1)) == std::vector<Node>{0, 1, 3});
  CHECK(nodes(tree.prompt(2)) == std::vector<Node>{4});
  CHECK(nodes(tree.prompt(3)) == std::vector<Node>{0, 1, 2, 5});
  CHECK(nodes(tree.parents()) == std::vector<Node>{kRoot, 0, 1, 1, kRoot, 2});
  CHECK(tree.depths()[5] == 3);
  CHECK(nodes(tree.final_path(2)) == std::vector<Node>{4});
}

TEST_CASE("a chained id has one prefix, a content id any number") {
  const std::vector<std::vector<requests::BlockId>> prompts{{1, 2, 3}, {4, 2, 3}, {2, 2, 2}};
  CHECK_THROWS_WITH(PrefixTree(trace_of(requests::Hashing::chained, prompts)), Catch::Contains("line 2"));
  const PrefixTree tree(trace_of(requests::Hashing::content, prompts));
  CHECK(tree.size() == 9);
  CHECK(nodes(tree.prompt(1)) == std::vector<Node>{3, 4, 5});
}

TEST_CASE("generated blocks continue the prompt's whole ones") {
  RequestTrace trace = trace_of(requests::Hashing::chained, {{1, 2}, {1, 3, 4}});
  trace.generated = requests::Generated::inferred;
  trace.requests[0].first_final_block = trace.requests[1].first_block;
  trace.requests[0].n_final_blocks = 2;
  const PrefixTree tree(trace);
  CHECK(nodes(tree.prompt(0)) == std::vector<Node>{0, 1});
  CHECK(nodes(tree.final_path(0)) == std::vector<Node>{0, 2});
  CHECK(nodes(tree.final_path(1)) == nodes(tree.prompt(1)));
}

TEST_CASE("a trace without blocks has no tree") {
  CHECK_THROWS_AS(PrefixTree(RequestTrace{.format = "azure"}), Error);
}

}  // namespace kvsim::test_prefix_tree
