#pragma once
/// The attention rows of the last queries over the slots of a unit, kept from step to step (MorphKV, arXiv
/// 2503.00979).
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "policies/api/slots.hpp"

namespace kvsim::policy {

struct ObservedRule {
  std::size_t rows = 1;  ///< the last queries
  bool product = false;  ///< of the heads' attention, which adds their logits; else its mean
  bool largest = false;  ///< of the rows; else their mean
};

/// What the last queries attend, each row known up to a factor of its own.
class ObservedRows {
 public:
  ObservedRows(const ObservedRule& rule, std::size_t heads)
      : rule_(rule), heads_(heads), shares_(rule.product ? 1 : heads) {}

  /// A row over `slots` slots, of which head(h, slot) is what query head h pays.
  template <class Head>
  void add(std::size_t slots, Head head) {
    if (rows_.size() == rule_.rows)
      std::rotate(rows_.begin(), rows_.begin() + 1, rows_.end());
    else
      rows_.emplace_back();
    std::vector<double>& row = rows_.back();
    row.assign(slots * shares_, rule_.product ? 1.0 : 0.0);
    for (std::size_t slot = 0; slot < slots; ++slot)
      for (std::size_t h = 0; h < heads_; ++h) {
        if (rule_.product)
          row[slot] *= head(h, slot);
        else
          row[slot * shares_ + h] = head(h, slot);
      }
  }
  /// No row has seen the token that joins at `own`.
  void admit(std::size_t own, std::size_t slots) {
    for (std::vector<double>& row : rows_) {
      row.resize(slots * shares_);
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(own * shares_), shares_, 0.0);
    }
  }
  void close(std::span<const std::size_t> victims) {
    for (std::vector<double>& row : rows_) close_up(row, victims, shares_);
  }

  /// Scores of the slots that are `older` than the window: each row is shared out among these alone.
  void score(const std::vector<char>& older, std::span<double> scores) {
    std::fill(scores.begin(), scores.end(), 0.0);
    const auto of =
        static_cast<double>(shares_ * (rule_.largest ? 1 : std::max<std::size_t>(1, rows_.size())));
    for (const std::vector<double>& row : rows_) {
      sums_.assign(shares_, 0.0);
      for (std::size_t slot = 0; slot < scores.size(); ++slot)
        for (std::size_t s = 0; s < shares_ && older[slot]; ++s) sums_[s] += row[slot * shares_ + s];
      for (std::size_t slot = 0; slot < scores.size(); ++slot) {
        double x = 0;
        for (std::size_t s = 0; s < shares_ && older[slot]; ++s)
          if (sums_[s] > 0) x += row[slot * shares_ + s] / sums_[s] / of;
        scores[slot] = rule_.largest ? std::max(scores[slot], x) : scores[slot] + x;
      }
    }
  }

 private:
  ObservedRule rule_;
  std::size_t heads_, shares_;               ///< query heads; how many of them have a share of their own
  std::vector<std::vector<double>> rows_{};  ///< [slots, shares] each, the oldest first
  std::vector<double> sums_{};
};

}  // namespace kvsim::policy
