// Every number in few bits: the plain codes that others are compared with.
#include "policies/api/spec.hpp"
#include "policies/parts/codes/grouped_codec.hpp"

namespace kvsim::policy::scalar {
namespace {

GroupedRules rules(const Params& params) {
  GroupedRule rule;
  rule.code = scalar_code(params, "scalar");
  rule.axis = params.is("axis", "channel") ? GroupAxis::channel : GroupAxis::token;
  rule.group = params.count("group");
  rule.residual = params.count("residual");
  if (rule.axis == GroupAxis::channel && rule.residual == 0) rule.residual = rule.group;
  return {rule, rule};
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  return grouped_ledger(rules(params), shape, held);
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  return std::make_unique<GroupedRepresentation>(rules(params), unit, "scalar(" + params.text() + ")");
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "scalar",
      .summary = "every number in few bits, in groups along tokens or along channels",
      .details =
          "The plain code: `group` channels of a token, or one channel of `group` successive tokens, share a "
          "scale. At "
          "equal groups both take the same bytes. Along channels tokens wait exactly until a group is full.",
      .params = {bits_param("4"),
                 count_param("group", "64", {0, 1 << 20},
                             "channels or tokens that share a scale; 0: a token's whole vector"),
                 choice_param("axis", "token", {"token", "channel"}, "what a group runs along"), zero_param(),
                 count_param("residual", "0", {0, 1 << 20},
                             "the latest so many are exact; along channels so many wait for each other, at "
                             "least a group",
                             "tokens")},
      .cost = [](const Params& params, const CostShape& shape) { return grouped_cost(rules(params), shape); },
      .check =
          [](const Params& params) {
            const GroupedRule rule = rules(params).keys;
            if (rule.axis == GroupAxis::channel) check_grouped_rule(rule, 1, "scalar(" + params.text() + ")");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::scalar
