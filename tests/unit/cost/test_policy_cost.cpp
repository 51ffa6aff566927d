// Costs worked out by hand, for one layer shaped as Llama-3-8B's: 32 query heads, 8 KV heads of 128.
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/holding.hpp"

namespace kvsim::cost::test_policy_cost {
namespace {

constexpr double kKv = 8 * 512;  // bytes of keys and values that a step reads per token

policy::CostShape shape(std::size_t prompt, std::size_t budget) {
  return {.n_layers = 32,
          .query_heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .value_dim = 128,
          .hidden = 4096,
          .prompt = prompt,
          .budget = budget};
}

policy::Cost cost(const std::string& text, std::size_t prompt = 8192, std::size_t budget = 2048) {
  const policy::Composition composition = policy::parse_composition(text, policy::builtin());
  return combined(composition.eviction.cost(shape(prompt, budget)),
                  composition.allocation.cost(shape(prompt, budget)));
}

/// Returns the bytes that decoding reads and writes per resident token, rows of attention included.
double step_bytes(const policy::Cost& cost) {
  const double rows = cost.decode_rows ? 2.0 * 32 * 2 : 0;  // half precision, written and read
  return rows + cost.step_slot.bytes;
}

std::uint64_t slot(const std::string& text) {
  const policy::Metadata metadata = cost(text).metadata;
  return metadata.lane_slot;
}

}  // namespace

TEST_CASE("bytes per slot that policies keep beside keys and values", "[policy_cost]") {
  // Positions take 4 bytes where a window, blocks or ties need them.
  CHECK(slot("full") == 0);
  CHECK(slot("window") == 0);         // a ring
  CHECK(slot("streaming_llm") == 0);  // the same behind the sinks
  CHECK(slot("snapkv") == 0);         // generated tokens are appended
  CHECK(slot("random") == 4);         // a position gives its draw
  CHECK(slot("l2_norm") == 4 + 2);
  CHECK(slot("l2_norm(tie=slot)") == 2);
  CHECK(slot("l2_norm(tie=slot,window=4)") == 4 + 2);
  CHECK(slot("h2o") == 4 + 4);
  CHECK(slot("h2o(normalise=mean)") == 4 + 4 + 4);  // the count of rows
  CHECK(slot("h2o(decode=false)") == 0);
  CHECK(slot("vatp") == 4 + 4 + 4);           // the value's norm
  CHECK(slot("roco") == 4 + 12);              // sum, squares, count
  CHECK(slot("q_hitter") == 4 + 12);          // attention and two errors
  CHECK(slot("hashevict") == 4 + 2);          // 16 bits, packed
  CHECK(slot("hashevict(bits=9)") == 4 + 2);  // rounded up
  CHECK(slot("hashevict(bits=64)") == 4 + 8);
  CHECK(slot("scissorhands") == 4 + 50 + 2);  // 400 bits and how many of them are ones
  const policy::Metadata h2o = cost("h2o(unit=layer)").metadata;
  CHECK(h2o.lane_slot == 0);
  CHECK(h2o.layer_slot == 8);
  const policy::Metadata kvcrush = cost("kvcrush").metadata;  // H2O's sums per query head, a position, tenure
  CHECK(kvcrush.lane_slot == 4 * 4);
  CHECK(kvcrush.layer_slot == 4 + 1);
  CHECK(cost("kvcrush.kv_heads").metadata.lane_slot == 4);
}

TEST_CASE("hashevict keeps one projection of half precision per lane or layer", "[policy_cost]") {
  CHECK(cost("hashevict").metadata.lane == 128 * 16 * 2);
  CHECK(cost("hashevict(projection=layer)").metadata.layer == 128 * 16 * 2);
  CHECK(cost("hashevict(projection=layer)").metadata.lane == 0);
}

TEST_CASE("bytes that decoding reads beside keys and values", "[policy_cost]") {
  // H2O: rows of 32 heads, written and read (128 bytes per token), and 8 sums of 4 bytes, read and written
  // (64): 192 of 4096. With sums per query head those take 256: 9.4 %.
  CHECK(step_bytes(cost("h2o")) / kKv == Approx(0.046875));
  CHECK((2.0 * 32 * 2 + 2.0 * 4 * 32) / kKv == Approx(0.09375));
  // HashEvict: codes of 2 bytes in 8 lanes; a byte per bit is eight times that.
  CHECK(step_bytes(cost("hashevict")) / kKv == Approx(0.00390625));
  CHECK(8 * step_bytes(cost("hashevict")) / kKv == Approx(0.03125));
  // TOVA: only the rows.
  CHECK(step_bytes(cost("tova")) / kKv == Approx(0.03125));
  CHECK(step_bytes(cost("snapkv")) == 0);
}

TEST_CASE("hashevict hashes each key and query once, and compares codes a word at a time", "[policy_cost]") {
  const policy::Cost query = cost("hashevict"), key = cost("hashevict(hash=key)");
  CHECK(key.step.flops == 2.0 * 128 * 16 * 8);
  CHECK(query.step.flops == 2.0 * 128 * 16 * (8 + 32));
  CHECK(key.step_slot.ops == 8 * (2 + 1));   // exclusive-or, population count, comparison
  CHECK(query.step_slot.ops == 32 * 2 + 8);  // every query head's distances
  // Algorithm 1 on 3 tokens with room for 2: two fill, the third is a step over two.
  const policy::Cost small = cost("hashevict(hash=key)", 3, 2);
  CHECK(small.prompt.ops == 2 * small.step_slot.ops);
  CHECK(small.prompt.flops == 3 * small.step.flops);
  CHECK(small.prompt.launches == 1 + 1);  // all keys are hashed together; the third compares
  CHECK(small.streams);
  // A prompt that is cut to a window is hashed at once.
  const policy::Cost cut = cost("hashevict(hash=key,prompt=window)", 8192, 2048);
  CHECK(!cut.streams);
  CHECK(cut.prompt.flops == 2.0 * 8192 * 128 * 16 * 8);
}

TEST_CASE("snapkv recomputes its window: 137 GFLOP in 32 layers at 16K", "[policy_cost]") {
  const policy::Cost snapkv = cost("snapkv(window=32)", 16384, 2048);
  CHECK(snapkv.prompt_rows == 32);
  CHECK(32 * 2.0 * static_cast<double>(snapkv.prompt_rows) * 16384 * 32 * 128 ==
        Approx(137.4e9).epsilon(1e-3));
  // 64 MiB of scores; one score per position and lane.
  CHECK(snapkv.scratch_bytes == 32ull * 32 * 16384 * 4 + 8ull * 16384 * 4);
  // Gathering 2048 tokens of 8 lanes moves 8.4 MB, read and written.
  const double moved = 2.0 * 2048 * 8 * 512, pooled = 2.0 * 4 * 32 * 16384, ranked = 4.0 * 8 * 16384;
  CHECK(snapkv.prompt.bytes == moved + pooled + ranked);
  // A prompt that fits is not compressed, and not even scored where decoding only appends.
  const policy::Cost fits = cost("snapkv", 1000, 2048);
  CHECK(fits.prompt.bytes == 0);
  CHECK(fits.prompt_rows == 0);
  CHECK(fits.scratch_bytes == 0);
  CHECK(cost("h2o", 1000, 2048).prompt_rows == policy::kAllRows);
}

TEST_CASE("h2o adds up every causal score of the prompt", "[policy_cost]") {
  const policy::Cost h2o = cost("h2o", 8192, 2048);
  CHECK(h2o.prompt_rows == policy::kAllRows);
  CHECK(h2o.prompt.ops == 32.0 * 8192 * 8193 / 2 + 8 * 8192.0 * 13);  // and sorts 8 lists of 2^13
  CHECK(h2o.scratch_bytes == 8 * 8192 * 4);
  CHECK(h2o.step_slot.ops == 32 + 8);
  // A prompt that streams through two slots: rows of 1 and 2 tokens, then one of 2.
  const policy::Cost stream = cost("h2o(prompt=stream)", 3, 2);
  CHECK(stream.prompt_rows == 0);
  CHECK(stream.prompt.ops == (1 + 2 + 2) * stream.step_slot.ops);
  CHECK(stream.prompt.bytes == (1 + 2 + 2) * step_bytes(stream));
  CHECK(stream.prompt.launches == 2);  // the third is added up, then the lowest is searched for
}

TEST_CASE("kvcrush compares 0.26 M scores and keeps 32 KiB of bits for 8K tokens", "[policy_cost]") {
  const policy::Cost base = cost("h2o", 8192, 2048);
  const policy::Cost kvcrush = cost("kvcrush", 8192, 2048);
  CHECK(kvcrush.scratch_bytes - base.scratch_bytes == 32 * 1024);
  // 262,144 comparisons; an exclusive-or and a count per word, one step into its group; sorted once as a
  // layer.
  CHECK(kvcrush.prompt.ops - base.prompt.ops == 262144.0 + 3 * 8192 + (1 + 24) * 8192 * 13);
}

TEST_CASE("k-means instead takes 2.1 TFLOP for 20 rounds over 2048 candidates", "[policy_cost]") {
  // A budget of 2048: 1536 important tokens, 512 representatives of the 3584 - 1536 others. At most 25
  // rounds.
  const policy::Cost bits = cost("kvcrush", 3584, 2048),
                     keys = cost("kvcrush(cluster=kmeans_keys)", 3584, 2048);
  const double rounds = keys.prompt.flops / (3.0 * 2048 * 512 * 8 * 128);
  CHECK(rounds == 25);
  CHECK(32 * keys.prompt.flops / rounds * 20 == Approx(2.06e12).epsilon(1e-3));
  CHECK(bits.prompt.flops == 0);
}

TEST_CASE("xkv runs one more prefill and sorts its last rows", "[policy_cost]") {
  const policy::Cost xkv = cost("xkv", 8192, 2048);
  CHECK(xkv.extra_prefills == 1);
  CHECK(xkv.prompt_rows == 8);
  CHECK(xkv.metadata.layer == 4);
  CHECK(xkv.appends);
  const policy::Composition composition = policy::parse_composition("xkv", policy::builtin());
  const policy::Cost split = composition.allocation.cost(shape(8192, 2048));
  // Sums of 8 causal rows of 32 heads, pooled by 7; a sort of 2^13; 2048 picks from a heap of 2^5 layers.
  CHECK(split.prompt.ops == 32.0 * (8 * 8192 - 28) + 7.0 * 32 * 8192 + 8192 * 13 + 2048 * 5);
}

TEST_CASE("tokens that are evicted together are searched for together", "[policy_cost]") {
  // Half of 2048 are evicted at once: a sort of 2^11 in 8 lanes once per 1024 tokens, and 1024 tokens move
  // up.
  const policy::Cost halved = cost("l2_norm(drop=0.5)");
  CHECK(halved.step_slot.ops == 8.0 * 11 / 1024);
  CHECK(halved.step.bytes == Approx(8 * 128 * 2 + 2.0 * 8 * 512));
  const policy::Cost paged = cost("l2_norm(granularity=32)");
  CHECK(paged.step_slot.ops == 8.0 / 32);
}

TEST_CASE("an allocation's cost is added to its eviction's", "[policy_cost]") {
  const policy::Cost alone = cost("h2o"), both = cost("h2o+cake_layers");
  CHECK(both.prompt_rows == policy::kAllRows);
  CHECK(both.metadata.layer == alone.metadata.layer + 4);
  CHECK(both.prompt.ops > alone.prompt.ops);
  CHECK(both.appends == alone.appends);
  CHECK(cost("h2o+pyramid").prompt.ops == alone.prompt.ops);
}

}  // namespace kvsim::cost::test_policy_cost
