// Two codes of four bits: the upper one drafts, both verify.
#include <algorithm>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/grouped_codec.hpp"

namespace kvsim::policy::quantspec {
namespace {

constexpr std::uint64_t kBits = 4;

/// `channels`: of a value.
GroupedRules rules(const Params& params, std::size_t channels) {
  GroupedRule rule;
  rule.code.bits = kBits;
  rule.code.remainder = params.is("read", "both") ? kBits : 0;
  rule.group = rule.residual = params.count("group");
  rule.buffered = true;
  GroupedRule keys = rule;
  keys.axis = GroupAxis::channel;
  rule.group = std::min(rule.group, channels);
  return {keys, rule};
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  return grouped_ledger(rules(params, shape.value_dim), shape, held);
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  return std::make_unique<GroupedRepresentation>(rules(params, static_cast<std::size_t>(unit.value_dim)),
                                                 unit, "quantspec(" + params.text() + ")");
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "quantspec",
      .summary = "two codes of four bits: a draft reads the upper ones, verification both",
      .paper =
          "Tiwari, Xi, Tomar, Hooper, Kim, Horton, Najibi, Mahoney, Keutzer, Gholami, QuantSpec: "
          "Self-Speculative Decoding with Hierarchical Quantized KV Cache, ICML 2025, "
          "https://arxiv.org/abs/2502.10424",
      .details =
          "Each channel of `group` successive keys, and `group` channels of each value, share the least "
          "number and a scale s, a fifteenth of the range. The upper code is the nearest multiple of s, the "
          "lower one what is left over in units of s/16, clipped to -8 .. 7 and rounded. The latest `group` "
          "to 2 `group` tokens are exact: as there are more, the oldest `group` of them are coded. A number "
          "takes 8.25 bits, of which read=upper reads 4.25.",
      .departures =
          {{"one cache holds both codes, whichever is read",
            "read=upper counts what a draft reads; kvsim cost estimate --acceptance verifies by read=both and "
            "counts its bytes as held, kvsim evaluate --mode draft verifies by the exact cache"},
           {"authors' code: scales and least numbers of keys and values are in the cache's 16-bit format",
            "16-bit floats with 10 bits of fraction, as other codes have here"},
           {"authors' code: groups of 128 channels, and heads of at least as many",
            "a value with fewer channels is one group"},
           {"paper: weights of a draft may have 4 bits, too",
            "kvsim cost estimate --draft prices another model that drafts"}},
      .params = {choice_param("read", "both", {"upper", "both"}, "the codes that a token is read from"),
                 count_param("group", "128", {1, 1 << 20},
                             "tokens of a key's group and of half the exact window, channels of a value's")},
      .cost = [](const Params& params,
                 const CostShape& shape) { return grouped_cost(rules(params, shape.value_dim), shape); },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::quantspec
