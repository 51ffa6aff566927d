// Keys in few bits per channel, values in few bits per token, the latest tokens exact.
#include "policies/api/spec.hpp"
#include "policies/parts/codes/grouped_codec.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::kivi {
namespace {

GroupedRule rule(const Params& params, const char* axis, std::uint64_t bits) {
  GroupedRule out;
  out.code = scalar_code(params, "kivi");
  if (bits > 0) out.code.bits = bits;
  out.axis = params.is(axis, "channel") ? GroupAxis::channel : GroupAxis::token;
  out.group = params.count("group");
  out.residual = params.count("residual");
  return out;
}

GroupedRules rules(const Params& params) {
  return {rule(params, "keys", 0), rule(params, "values", params.count("value_bits"))};
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  return grouped_ledger(rules(params), shape, held);
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  return std::make_unique<GroupedRepresentation>(rules(params), unit, "kivi(" + params.text() + ")");
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "kivi",
      .summary = "keys in few bits per channel, values per token, the latest tokens exact",
      .paper =
          "Liu, Yuan, Jin, Zhong, Xu, Braverman, Chen, Hu, KIVI: A Tuning-Free Asymmetric 2bit Quantization "
          "for KV Cache, ICML 2024, https://arxiv.org/abs/2402.02750",
      .details =
          "Keys: each channel of `group` successive tokens shares a scale and a least number. Values: "
          "`group` channels of a token do. Keys wait exactly until there are `residual` of them, then all "
          "are coded at once; of the values the latest `residual` are exact. Codes are made of the keys "
          "after rotation. The prompt is processed with exact numbers; `keys` and `values` swap the axes, "
          "for the paper's comparison of the four.",
      .departures =
          {{"authors' code: keys are coded after the query has read them",
            "the same: a token's own query reads it exactly"},
           {"paper and code: nothing is evicted",
            "a coded token that an eviction drops leaves its group, whose scale lives as long as one of its "
            "tokens; groups are of tokens that are held"}},
      .params = {bits_param("2"),
                 count_param("value_bits", "0", {0, 8},
                             "of a value's code, where it has another width than a key's; 0: the same",
                             "bits"),
                 count_param("group", "32", {1, 1 << 20}, "tokens of a key's group, channels of a value's"),
                 count_param("residual", "128", {1, 1 << 20}, "of the exact window; a multiple of the group",
                             "tokens"),
                 choice_param("keys", "channel", {"channel", "token"},
                              "what shares a scale: a channel of several tokens, or channels of a token"),
                 choice_param("values", "token", {"channel", "token"}, "the same for values")},
      .cost = [](const Params& params, const CostShape& shape) { return grouped_cost(rules(params), shape); },
      .check =
          [](const Params& params) {
            scalar_code(params, "kivi");
            if (params.count("residual") % params.count("group") != 0)
              usage_error("the residual must be a multiple of the group", "kivi(" + params.text() + ")",
                          "Say residual=" +
                              std::to_string((params.count("residual") / params.count("group") + 1) *
                                             params.count("group")) +
                              ".");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::kivi
