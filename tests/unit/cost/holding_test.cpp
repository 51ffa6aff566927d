#include "sim/cost/holding.hpp"

#include <catch2/catch.hpp>

#include "policies/builtin.hpp"

namespace kvsim::cost {
namespace {

/// Shaped as Llama-3-8B.
Model model() {
  Model out;
  out.layers = 32;
  out.hidden = 4096;
  out.query_heads = 32;
  out.kv_heads = 8;
  out.head_dim = out.value_dim = 128;
  return out;
}

policy::Composition policy_of(const std::string& text) {
  return policy::parse_composition(text, policy::builtin());
}

TEST_CASE("A rule's holding fills the budget and stays there, or appends", "[holding]") {
  const Holding h2o = rule_holding(policy_of("h2o"), model(), 0, 1000, 500, 100);
  CHECK(h2o.tokens(0) == 256 * 100);
  CHECK(h2o.tokens(500) == 256 * 100);
  const Holding snapkv = rule_holding(policy_of("snapkv"), model(), 0, 1000, 500, 100);
  CHECK(snapkv.tokens(0) == 256 * 100);
  CHECK(snapkv.tokens(500) == 256 * 600);
  const Holding full = rule_holding(policy_of("full"), model(), 32, 1000, 500, 1);
  CHECK(full.tokens(0) == 1024 * 1000);
  CHECK(full.tokens(500) == 1024 * 1500);
  const Holding post = rule_holding(policy_of("h2o(phase=post)"), model(), 0, 1000, 500, 100);
  CHECK(post.tokens(0) == 256 * 100);
  CHECK(post.tokens(1) == 256 * 101);
  CHECK(post.tokens(2) == 256 * 101);
  const Holding roomy = rule_holding(policy_of("h2o"), model(), 0, 1000, 500, 1200);
  CHECK(roomy.tokens(0) == 256 * 1000);
  CHECK(roomy.tokens(199) == 256 * 1199);
  CHECK(roomy.tokens(500) == 256 * 1200);
}

}  // namespace
}  // namespace kvsim::cost
