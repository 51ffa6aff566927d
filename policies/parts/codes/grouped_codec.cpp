#include "policies/parts/codes/grouped_codec.hpp"

#include <algorithm>
#include <numeric>

#include "policies/parts/codes/coding_cost.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// Adds one side of a cache. `groups`: those along channels, in tokens' groups.
void add_side(Ledger& ledger, const GroupedRule& rule, const StorageShape& shape, std::size_t dim,
              std::size_t exact, std::size_t coded, std::size_t groups_of_tokens) {
  const std::uint64_t lanes = shape.n_lanes;
  if (rule.code.exact()) {
    ledger.exact += lanes * (exact + coded) * dim * shape.element_bits;
    return;
  }
  const std::size_t groups = rule.axis == GroupAxis::channel
                                 ? groups_of_tokens * dim
                                 : coded * (rule.group == 0 ? 1 : dim / rule.group);
  ledger.exact += lanes * exact * dim * shape.element_bits;
  ledger.codes += lanes * coded * dim * (rule.code.bits + rule.code.remainder);
  ledger.parameters += lanes * groups * rule.code.group_bits();
}

}  // namespace

std::size_t GroupedRule::exact_tokens(const LaneTokens& held) const {
  const std::size_t tokens = held.all();
  if (buffered) {
    const std::size_t of_prompt = held.kept > 2 * residual ? residual + held.kept % residual : held.kept;
    const std::size_t exact = of_prompt + held.appended;
    return exact <= 2 * residual ? exact : residual + 1 + (exact - 1) % residual;
  }
  if (axis == GroupAxis::channel) return tokens % residual;
  return std::min(tokens, residual);
}

void check_grouped_rule(const GroupedRule& rule, std::size_t dim, std::string_view where) {
  if (rule.code.exact()) return;
  const std::string at(where);
  if (rule.axis == GroupAxis::token) {
    if (rule.group > 0 && dim % rule.group != 0) {
      // A group may also be one of tokens, which divide the residual.
      const std::size_t all = std::gcd(dim, rule.residual);
      std::size_t group = std::min(rule.group, all);
      while (all % group != 0) --group;
      usage_error("groups of " + std::to_string(rule.group) + " do not divide a vector of " +
                      std::to_string(dim) + " numbers",
                  at, "Say group=" + std::to_string(group) + ".");
    }
    return;
  }
  if (rule.group == 0 || rule.residual == 0)
    usage_error("groups along a channel are of so many tokens, which wait for each other", at,
                "Say group=64.");
  if (rule.residual % rule.group != 0)
    usage_error("groups of " + std::to_string(rule.group) + " tokens do not divide the residual of " +
                    std::to_string(rule.residual),
                at,
                "The residual is coded at once, in whole groups. Say residual=" +
                    std::to_string((rule.residual / rule.group + 1) * rule.group) + ".");
}

Ledger grouped_ledger(const GroupedRules& rules, const StorageShape& shape, const LaneTokens& held) {
  const std::size_t tokens = held.all();
  Ledger ledger;
  const auto add = [&](const GroupedRule& rule, std::size_t dim) {
    const std::size_t exact = rule.code.exact() ? tokens : rule.exact_tokens(held);
    add_side(ledger, rule, shape, dim, exact, tokens - exact,
             rule.axis == GroupAxis::channel && rule.group > 0 ? (tokens - exact) / rule.group : 0);
  };
  add(rules.keys, shape.key_dim);
  add(rules.values, shape.value_dim);
  return ledger;
}

Cost grouped_cost(const GroupedRules& rules, const CostShape& shape) {
  // Along channels a whole residual is coded at once.
  const auto every = [](const GroupedRule& rule) {
    return rule.axis == GroupAxis::channel || rule.buffered ? static_cast<double>(rule.residual) : 1;
  };
  return coding_cost(shape, scalar_code_ops(rules.keys.code), scalar_code_ops(rules.values.code),
                     Coding::apart, every(rules.keys), every(rules.values));
}

void GroupedSide::begin(std::span<const Position> joined, CacheRows& rows) {
  exact_.assign(joined.begin(), joined.end());
  if (!rule_.code.exact()) code_oldest(joined.size() - rule_.exact_tokens({.kept = joined.size()}), rows);
}

void GroupedSide::settle(Position position, CacheRows& rows) {
  exact_.push_back(position);
  if (rule_.code.exact()) return;
  if (rule_.buffered) {
    if (exact_.size() > 2 * rule_.residual) code_oldest(rule_.residual, rows);
  } else if (rule_.axis == GroupAxis::token) {
    if (exact_.size() > rule_.residual) code_oldest(exact_.size() - rule_.residual, rows);
  } else if (exact_.size() >= rule_.residual) {
    code_oldest(rule_.residual, rows);
  }
}

void GroupedSide::leave(Position position) {
  if (const auto found = group_of_.find(position); found != group_of_.end()) {
    left_[found->second] -= 1;
    if (left_[found->second] == 0) --groups_;
    group_of_.erase(found);
    return;
  }
  const auto found = std::find(exact_.begin(), exact_.end(), position);
  if (found != exact_.end()) exact_.erase(found);
}

void GroupedSide::code_oldest(std::size_t tokens, CacheRows& rows) {
  const std::size_t n = dim(rows.shape()), lanes = rows.shape().n_lanes;
  if (rule_.axis == GroupAxis::token) {
    const std::size_t group = rule_.group == 0 ? n : rule_.group;
    for (std::size_t token = 0; token < tokens; ++token)
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::span<float> numbers = row(rows, lane, exact_[token]);
        for (std::size_t first = 0; first < n; first += group) rule_.code.code(numbers.data() + first, group);
      }
  } else {
    channel_.resize(rule_.group * n);
    for (std::size_t first = 0; first < tokens; first += rule_.group) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        for (std::size_t i = 0; i < rule_.group; ++i)
          std::ranges::copy(row(rows, lane, exact_[first + i]), channel_.data() + i * n);
        for (std::size_t c = 0; c < n; ++c) rule_.code.code(channel_.data() + c, rule_.group, n);
        for (std::size_t i = 0; i < rule_.group; ++i)
          std::copy_n(channel_.data() + i * n, n, row(rows, lane, exact_[first + i]).begin());
      }
      for (std::size_t i = 0; i < rule_.group; ++i) group_of_[exact_[first + i]] = left_.size();
      left_.push_back(rule_.group);
      ++groups_;
    }
  }
  exact_.erase(exact_.begin(), exact_.begin() + static_cast<std::ptrdiff_t>(tokens));
}

void GroupedSide::add_to(Ledger& ledger, const CacheRows& rows) const {
  add_side(ledger, rule_, rows.shape(), dim(rows.shape()), exact_.size(), rows.slots() - exact_.size(),
           groups_);
}

void GroupedCodec::begin(const Prompt& /*prompt*/, CacheRows& rows) {
  const std::vector<Position> joined = ascending(rows.positions());
  keys_.begin(joined, rows);
  values_.begin(joined, rows);
}

void GroupedCodec::leave(std::span<const std::size_t> victims, CacheRows& rows,
                         std::optional<std::size_t> /*behind*/) {
  for (const std::size_t victim : victims) {
    keys_.leave(rows.positions()[victim]);
    values_.leave(rows.positions()[victim]);
  }
}

void GroupedCodec::settle(std::size_t own_slot, CacheRows& rows) {
  keys_.settle(rows.positions()[own_slot], rows);
  values_.settle(rows.positions()[own_slot], rows);
}

Ledger GroupedCodec::ledger(const CacheRows& rows) const {
  Ledger out;
  keys_.add_to(out, rows);
  values_.add_to(out, rows);
  return out;
}

GroupedRepresentation::GroupedRepresentation(const GroupedRules& rules, const CacheUnit& unit,
                                             std::string_view where)
    : rules_(rules) {
  check_grouped_rule(rules.keys, static_cast<std::size_t>(unit.head_dim), where);
  check_grouped_rule(rules.values, static_cast<std::size_t>(unit.value_dim), where);
}

}  // namespace kvsim::policy
