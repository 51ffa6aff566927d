#pragma once
/// Stores keys and values as scalar codes in groups, along a token's vector or along a channel over tokens,
/// with a window of tokens that stay exact.
///
/// Along a token's vector a group is `group` neighbouring channels of one head, and the latest `residual`
/// tokens are exact: as a token joins, the oldest of them is coded (KIVI's values). Along a channel a group
/// is one channel of `group` successive tokens, and tokens wait exactly until there are `residual` of them;
/// then all are coded at once (KIVI's keys). Successive means: in the order in which tokens joined, as far as
/// they are still held. A coded token that is evicted leaves its group; the group's scale lives as long as
/// one of its tokens.
#include <deque>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policies/api/cost.hpp"
#include "policies/api/representation.hpp"
#include "policies/parts/codes/scalar_code.hpp"

namespace kvsim::policy {

enum class GroupAxis { token, channel };

/// Of the keys or of the values.
struct GroupedRule {
  ScalarCode code{};
  GroupAxis axis = GroupAxis::token;
  std::size_t group = 0;     ///< channels or tokens; 0: the whole vector, never with GroupAxis::channel
  std::size_t residual = 0;  ///< tokens; with GroupAxis::channel a multiple of `group`
  /// The latest `residual` to 2 * `residual` are exact, along either axis: as there are more, the oldest
  /// `residual` of them are coded at once. Of a longer prompt whole residuals are, all but the last.
  bool buffered = false;

  /// How many tokens are exact, if none has been evicted since the prompt.
  std::size_t exact_tokens(const LaneTokens& held) const;
};

struct GroupedRules {
  GroupedRule keys{}, values{};
};

/// Throws Error(usage), placed at `where`, where a group does not divide its axis or its residual.
void check_grouped_rule(const GroupedRule& rule, std::size_t dim, std::string_view where);

Ledger grouped_ledger(const GroupedRules& rules, const StorageShape& shape, const LaneTokens& held);
Cost grouped_cost(const GroupedRules& rules, const CostShape& shape);

/// The keys or the values of one cache.
class GroupedSide {
 public:
  enum Which { keys, values };
  GroupedSide(Which which, const GroupedRule& rule) : which_(which), rule_(rule) {}

  /// `joined`: the positions held, in the order in which they joined.
  void begin(std::span<const Position> joined, CacheRows& rows);
  void leave(Position position);
  void settle(Position position, CacheRows& rows);
  void add_to(Ledger& ledger, const CacheRows& rows) const;

 private:
  std::size_t dim(const StorageShape& shape) const {
    return which_ == keys ? shape.key_dim : shape.value_dim;
  }
  std::span<float> row(CacheRows& rows, std::size_t lane, Position position) const {
    const std::size_t slot = rows.slot_of(position);
    return which_ == keys ? rows.key(lane, slot) : rows.value(lane, slot);
  }
  void code_oldest(std::size_t tokens, CacheRows& rows);

  Which which_;
  GroupedRule rule_;
  std::deque<Position> exact_;                          ///< in the order in which they joined
  std::unordered_map<Position, std::size_t> group_of_;  ///< of tokens coded along channels
  std::vector<std::size_t> left_;                       ///< tokens held of each group along channels
  std::size_t groups_ = 0;                              ///< of them with a token
  std::vector<float> channel_;                          // scratch
};

class GroupedCodec final : public Codec {
 public:
  explicit GroupedCodec(const GroupedRules& rules)
      : keys_(GroupedSide::keys, rules.keys), values_(GroupedSide::values, rules.values) {}

  void begin(const Prompt& prompt, CacheRows& rows) override;
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> behind) override;
  void settle(std::size_t own_slot, CacheRows& rows) override;
  Ledger ledger(const CacheRows& rows) const override;

 private:
  GroupedSide keys_, values_;
};

class GroupedRepresentation final : public Representation {
 public:
  /// Throws Error(usage) as check_grouped_rule() does.
  GroupedRepresentation(const GroupedRules& rules, const CacheUnit& unit, std::string_view where);
  std::unique_ptr<Codec> codec() const override { return std::make_unique<GroupedCodec>(rules_); }

 private:
  GroupedRules rules_;
};

}  // namespace kvsim::policy
