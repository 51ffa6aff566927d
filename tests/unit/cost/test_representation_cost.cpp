// What making, reading and merging stored numbers costs: by hand, and in a step's time.
#include <catch2/catch.hpp>

#include "analysis/cost/reference_layer.hpp"
#include "policies/builtin.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/unit/cost/toy_model.hpp"

namespace kvsim::cost::test_representation_cost {
namespace {

constexpr double kLanes = 8, kDim = 128, kTokenNumbers = 8 * 256;

policy::Composition composition(const std::string& text) {
  return policy::parse_composition(text, policy::builtin());
}

policy::Cost cost(const std::string& representation) {
  return composition("full+" + representation).representation->cost(analysis::kReferenceLayer);
}

double reading(const std::string& representation) {
  return cost(representation).read_number.ops;
}

/// Rates for calculation by hand; times of compute and memory add up.
Machine toy_machine() {
  Machine machine;
  machine.name = "toy";
  machine.matrix_rate = 1000;
  machine.vector_rate = 50;
  machine.bandwidth = 100;
  machine.memory = 1'000'000;
  machine.ceilings.norm = 1;
  machine.ceilings.attention_memory = machine.ceilings.elementwise_memory = 1;
  machine.ceilings.launch = machine.ceilings.elementwise_launch = machine.ceilings.attention_launch = 0;
  machine.ceilings.attention_sequence = 0;
  return machine;
}

PassTime toy_step(const std::string& text, std::uint64_t tokens, std::uint64_t limit, std::uint64_t step) {
  const policy::Composition policy = composition(text);
  const Model model = toy_model();
  const Serving serving = served_with({.prompt = tokens, .generate = 50}, policy);
  const Holding holding{{{2, {{1, tokens, limit}}}}};
  return step_time(model, toy_machine(), serving, holding, cost_of(policy, model, tokens, tokens), step);
}

}  // namespace

TEST_CASE("every representation says what it costs", "[policy_cost]") {
  std::size_t representations = 0;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::representation) continue;
    CAPTURE(spec.name);
    CHECK(spec.cost);
    ++representations;
  }
  CHECK(representations >= 13);
}

TEST_CASE("operations to read a number", "[policy_cost]") {
  CHECK(reading("kivi(bits=2)") == 4);  // unpacked, converted, times, plus
  CHECK(reading("kivi(bits=8)") == 3);  // a byte needs no unpacking
  CHECK(reading("kivi(bits=16)") == 0);
  CHECK(reading("scalar(bits=4,zero=integer)") == 4);  // unpacked, minus, converted, times
  CHECK(reading("scalar(bits=4,zero=absmax)") == 3);   // unpacked, converted, times
  CHECK(reading("fp8") == 1);                          // converted
  CHECK(reading("fp8(scale=head)") == 2);
  CHECK(reading("q8_0") == 2);
  CHECK(reading("q4_0") == 4);
  CHECK(reading("mikv") == 4);
  CHECK(reading("zipcache") == 4.5);  // values once more: times the channel's factor
  CHECK(reading("zipcache(separable=false)") == 4);
  CHECK(reading("gear") == Approx(4.02));  // two of a hundred are put back
  CHECK(reading("think") == 0);            // the query has no component for a dropped channel
  CHECK(reading("d2o_merge") == 0);
}

TEST_CASE("kivi codes the kept prompt once, values token by token, keys by the window", "[policy_cost]") {
  const policy::Cost kivi = cost("kivi(bits=2)");
  // Two comparisons, minus, over, rounded, packed.
  CHECK(kivi.prompt.ops == 6 * 2048 * kTokenNumbers);
  CHECK(kivi.prompt.bytes == 2 * 2048 * kTokenNumbers);
  CHECK(kivi.prompt.launches == 2);
  CHECK(kivi.step.ops == 6 * kTokenNumbers);
  CHECK(kivi.step.launches == 1 + 1.0 / 128);
  // Engines code within the kernel that appends.
  const policy::Cost fp8 = cost("fp8");
  CHECK(fp8.step.ops == 2 * kTokenNumbers);
  CHECK(fp8.step.launches == 0);
  CHECK(fp8.prompt.bytes == 0);
}

TEST_CASE("gear's factors cost products per token and query head", "[policy_cost]") {
  const policy::Cost gear = cost("gear"), plain = cost("gear(rank=0,buffer_rank=0)");
  CHECK(gear.step_slot.flops == 4 * 4 * 32);  // rank 4, keys and values, a multiply-add is two
  CHECK(plain.step_slot.flops == 0);
  CHECK(gear.prompt.flops == 3 * 4 * 4 * 2048 * kTokenNumbers);  // 3 loops of 2 products
  CHECK(plain.prompt.flops == 0);
  CHECK(cost("gear(bits=16)").prompt.ops == 0);
}

TEST_CASE("saliency needs rows that a fused kernel does not return", "[policy_cost]") {
  CHECK(cost("zipcache").prompt_rows == 409 + 409);  // 5 % last ones, 5 % drawn
  CHECK(cost("zipcache(share=1)").prompt_rows == 0);
  CHECK(cost("mikv").prompt_rows == policy::kAllRows);
  CHECK(cost("mikv(recent=1)").prompt_rows == 0);
  // Everything is coded again every 100 tokens: read and made.
  CHECK(cost("zipcache").step_slot.ops == Approx(kLanes * kDim * (4 + 6 + 5 + 8) / 100));
}

TEST_CASE("generated tokens are ranked by attention that fused kernels do not return", "[policy_cost]") {
  // mikv adds 32 heads' entries to 8 scores per slot, and compares these; scores are read and written.
  const policy::Cost mikv = cost("mikv");
  CHECK(mikv.decode_rows);
  CHECK(mikv.step_slot.ops == 32 + kLanes);
  CHECK(mikv.step_slot.bytes == 2 * kLanes * 4);
  CHECK_FALSE(cost("mikv(recent=1)").decode_rows);
  CHECK(cost("mikv(recent=1)").step_slot.ops == 0);
  // zipcache reads ten probes in a hundred rows, over the tokens that have joined by then: the last five rows
  // over 96 to 100 of them, five drawn ones over half of 1 to 95. A lane holds a sum for each of the hundred.
  const policy::Cost zip = cost("zipcache"), latest = cost("zipcache(ranking=last)"),
                     none = cost("zipcache(share=1)");
  const double entries = (96 + 97 + 98 + 99 + 100 + 5 * (1 + 95) / 2.0) / 100;
  CHECK_FALSE(zip.decode_rows);
  CHECK(zip.step.ops == Approx(32 * entries));
  CHECK(zip.step.bytes == Approx((2 * 32 * 2 + 2 * kLanes * 4) * entries));
  CHECK(zip.step.launches == Approx(0.04 + 0.10));
  CHECK(zip.metadata.lane == 400);
  CHECK(latest.step.ops == Approx(32 * 1.0));
  CHECK(none.step.ops == 0);
  CHECK(none.metadata.lane == 0);
}

TEST_CASE("merging compares what leaves with what stays", "[policy_cost]") {
  const policy::Cost d2o = cost("d2o_merge");
  // 6144 tokens leave, 2048 stay, in 8 lanes.
  CHECK(d2o.prompt.flops == 2 * 6144 * 2048 * kLanes * kDim);
  CHECK(d2o.leaving_slot.flops == 2 * 2 * kLanes * kDim);  // the product, and the norm
  CHECK(d2o.leaving_slot.bytes == 2 * kLanes * kDim);
  CHECK(d2o.leaving.bytes == 3 * 2 * kTokenNumbers);  // two rows read, one written
  CHECK(d2o.read_number.ops == 0);
  const policy::Cost values = cost("d2o_merge(target=values)");
  CHECK(values.leaving.bytes == d2o.leaving.bytes / 2);
  // By position nothing is multiplied, and what leaves later is lost.
  const policy::Cost elastic = cost("elastic_merge");
  CHECK(elastic.prompt.flops == 0);
  CHECK(elastic.leaving.ops == 0);
  CHECK(elastic.prompt.ops == 6144 * (2 * kTokenNumbers + kLanes));
}

TEST_CASE("a step reads codes and makes numbers of them", "[latency]") {
  const PassTime exact = toy_step("full", 9, kNoLimit, 1), fp8 = toy_step("full+fp8", 9, kNoLimit, 1);
  const OpClass attention = OpClass::attention, policy = OpClass::policy;
  // Ten tokens of 4 numbers in two layers: 40 bytes less in each, and an operation per number.
  CHECK(exact[attention].bytes - fp8[attention].bytes == 2 * 40);
  CHECK(fp8[attention].compute - exact[attention].compute == Approx(2 * 40 / 50.0));
  CHECK(fp8[attention].seconds - exact[attention].seconds == Approx(2 * (40 / 50.0 - 40 / 100.0)));
  CHECK(exact[OpClass::elementwise].bytes - fp8[OpClass::elementwise].bytes == 2 * 4);  // the new token's
  CHECK(fp8[policy].seconds == Approx(2 * 2 * 4 / 50.0));
  CHECK(exact[policy].seconds == 0);
  // Tokens in kivi's windows are read as they come. Of 10 keys 8 are coded: 32 bits of codes, 4 groups of 2
  // channels with 32 bits each, 64 bits for the others; of 10 values 6: 24 bits, 6 groups, and 128 bits.
  const PassTime kivi = toy_step("full+kivi(group=2,residual=4)", 9, kNoLimit, 1);
  CHECK(kivi[attention].bytes - exact[attention].bytes == 2 * ((32 + 256 + 64 + 24 + 192 + 128) / 8 - 80));
  CHECK(kivi[attention].compute - exact[attention].compute == Approx(2 * 4 * (8 + 6) * 2 / 50.0));
}

TEST_CASE("merging is paid when a token leaves", "[latency]") {
  const auto flops = [](const std::string& text, std::uint64_t limit, std::uint64_t step) {
    return toy_step(text, 9, limit, step)[OpClass::policy].flops;
  };
  // 9 tokens and a limit of 10: the second generated token is the first to make another leave, of 10.
  CHECK(flops("window+d2o_merge", 10, 1) == 0);
  CHECK(flops("window+d2o_merge", 10, 2) == 2 * 10 * 2 * 2 * 2);
  CHECK(flops("window", 10, 2) == 0);
  CHECK(flops("window+elastic_merge", 10, 2) == 0);
  CHECK(flops("window+d2o_merge", kNoLimit, 2) == 0);
}

}  // namespace kvsim::cost::test_representation_cost
