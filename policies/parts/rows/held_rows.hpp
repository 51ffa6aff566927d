#pragma once
/// Ranks some of a text's tokens as if they were a prompt: by their own keys, values and queries, and by the
/// attention of the last of them among these.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/api/slots.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// What such a ranking needs of a run: rows of attention are computed anew from keys and queries.
Needs needs_of_held(const Part& base);
/// The same where nothing of the run's own rows is read.
Needs needs_anew(const Part& base);
/// Throws Error(usage) where `base` needs more than what is held, or takes tokens one by one.
void check_held(const std::string& policy, const Part& base);

/// What the tokens of a cache are made of, token after token: keys and values of every lane, and queries.
class HeldRows {
 public:
  /// With all tokens of the prompt.
  HeldRows(const CacheUnit& unit, const Needs& needs, const Prompt& prompt) : HeldRows(unit, needs) {
    resize(prompt.length());
    for (std::size_t j = 0; j < prompt.length(); ++j)
      set(
          j, [&](std::size_t lane) { return prompt.keys(static_cast<int>(lane)).row(j); },
          [&](std::size_t lane) { return prompt.values(static_cast<int>(lane)).row(j); },
          [&](std::size_t head) { return prompt.queries(static_cast<int>(head)).row(j); });
  }
  HeldRows(const CacheUnit& unit, const Needs& needs)
      : lanes_(static_cast<std::size_t>(unit.n_lanes)),
        heads_(static_cast<std::size_t>(unit.n_query_heads())),
        key_dim_(needs.keys ? static_cast<std::size_t>(unit.head_dim) : 0),
        value_dim_(needs.values ? static_cast<std::size_t>(unit.value_dim) : 0),
        query_dim_(needs.queries ? static_cast<std::size_t>(unit.head_dim) : 0),
        width_(lanes_ * (key_dim_ + value_dim_) + heads_ * query_dim_) {}

  std::size_t size() const { return width_ == 0 ? 0 : rows_.size() / width_; }
  void resize(std::size_t slots) { rows_.resize(slots * width_); }
  void close(std::span<const std::size_t> victims) {
    if (width_ > 0) close_up(rows_, victims, width_);
  }

  /// Writes the rows of a slot, of which only those are asked for that are needed: key_of(lane),
  /// value_of(lane), query_of(head).
  template <class Key, class Value, class Query>
  void set(std::size_t slot, Key key_of, Value value_of, Query query_of) {
    const auto copy = [](auto from, std::span<float> to) {
      if (!to.empty()) std::copy_n(from.begin(), to.size(), to.begin());
    };
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (key_dim_ > 0) copy(key_of(lane), key(slot, lane));
      if (value_dim_ > 0) copy(value_of(lane), value(slot, lane));
    }
    for (std::size_t head = 0; head < heads_ && query_dim_ > 0; ++head)
      copy(query_of(head), query(slot, head));
  }
  /// Returns the same of other slots, in their order.
  HeldRows at(std::span<const std::size_t> slots) const {
    HeldRows out = *this;
    out.resize(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::copy_n(rows_.begin() + static_cast<std::ptrdiff_t>(slots[i] * width_), width_,
                  out.rows_.begin() + static_cast<std::ptrdiff_t>(i * width_));
    return out;
  }
  // [tokens, dim]
  MatrixView keys(std::size_t lane) const { return view(lane * key_dim_, key_dim_); }
  MatrixView values(std::size_t lane) const {
    return view(lanes_ * key_dim_ + lane * value_dim_, value_dim_);
  }
  MatrixView queries(std::size_t head) const {
    return view(lanes_ * (key_dim_ + value_dim_) + head * query_dim_, query_dim_);
  }

 private:
  std::span<float> key(std::size_t slot, std::size_t lane) {
    return {rows_.data() + slot * width_ + lane * key_dim_, key_dim_};
  }
  std::span<float> value(std::size_t slot, std::size_t lane) {
    return {rows_.data() + slot * width_ + lanes_ * key_dim_ + lane * value_dim_, value_dim_};
  }
  std::span<float> query(std::size_t slot, std::size_t head) {
    return {rows_.data() + slot * width_ + lanes_ * (key_dim_ + value_dim_) + head * query_dim_, query_dim_};
  }
  MatrixView view(std::size_t first, std::size_t dim) const {
    return {rows_.data() + first, size(), dim, width_};
  }

  std::size_t lanes_, heads_, key_dim_, value_dim_, query_dim_, width_;
  std::vector<float> rows_;
};

/// What attention makes of products of queries and keys, as Prompt says.
struct LogitRule {
  /// `needs`: of what ranks; the rest is left out.
  static LogitRule of(const Prompt& prompt, const CacheUnit& unit, const Needs& needs);

  double scale = 1, cap = 0;
  Rotary rotary{};
  std::vector<float> sinks{};  ///< of the unit's query heads
};

/// What a cache holds, as if it were a prompt.
class HeldPrompt final : public Prompt {
 public:
  HeldPrompt(const HeldRows& rows, std::span<const Position> positions, const LogitRule& rule,
             std::size_t first)
      : rows_(rows), positions_(positions), rule_(rule), first_(first) {}
  std::size_t length() const override { return positions_.size(); }
  std::size_t first() const override { return first_; }
  std::size_t position(std::size_t row) const override { return static_cast<std::size_t>(positions_[row]); }
  MatrixView keys(int lane) const override { return rows_.keys(static_cast<std::size_t>(lane)); }
  MatrixView values(int lane) const override { return rows_.values(static_cast<std::size_t>(lane)); }
  MatrixView queries(int head) const override { return rows_.queries(static_cast<std::size_t>(head)); }
  double scale() const override { return rule_.scale; }
  double cap() const override { return rule_.cap; }
  Rotary rotary() const override { return rule_.rotary; }
  float sink(int head) const override { return rule_.sinks[static_cast<std::size_t>(head)]; }

 private:
  const HeldRows& rows_;
  std::span<const Position> positions_;
  const LogitRule& rule_;
  std::size_t first_;
};

/// Returns `base` once it has seen tokens at ascending `positions`. `first`: of the text, if these do not
/// begin it, which then has no sinks here.
std::unique_ptr<Eviction> ranked(const Part& base, const CacheUnit& unit, const HeldRows& held,
                                 std::span<const Position> positions, const LogitRule& rule,
                                 std::size_t first = 0);

}  // namespace kvsim::policy
