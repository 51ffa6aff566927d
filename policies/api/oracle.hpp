#pragma once
/// Evictions that know the future: bounds for the others, not policies anybody could run.
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// What becomes of a unit after its prompt of P tokens: the steps that are measured, one query each, at
/// consecutive positions.
///
/// The first of them is the first generated token's, or the last prompt token's once more: the prompt has
/// been compressed, and that query asks the compressed cache. It then finds its own key as every query does,
/// whether or not the unit holds it, and besides it what the unit holds of the prompt; nobody joins or leaves
/// for it.
class Future {
 public:
  virtual ~Future() = default;
  virtual std::size_t prompt() const = 0;  ///< P
  /// Position of the first step's query: P, or P - 1 when the last prompt row is measured again.
  virtual std::size_t first_position() const = 0;
  virtual std::size_t steps() const = 0;
  /// [steps, first_position + steps]: full rows of the steps' queries, averaged over the unit's query heads;
  /// 0 for keys a query cannot see.
  virtual MatrixView attention() const = 0;
  /// [steps, head_dim] as attention used them, before the scale.
  virtual MatrixView queries(int query_head) const = 0;
  /// [first_position + steps, head_dim] as the cache holds them.
  virtual MatrixView keys(int lane) const = 0;
  virtual double scale() const = 0;  ///< on q.k
};

class Oracle : public Eviction {
 public:
  /// Comes before finish_prompt(); `future` holds until start() has been called for every budget.
  virtual void set_future(const Future& future) = 0;
  /// After set_future(), of those whose spec says `loss_curve`: [b - 1] is the attention on tokens that are
  /// not held, averaged over the unit's query heads and summed over the steps, with a budget of b = 1 .. P.
  /// It falls by less and less.
  virtual std::vector<double> losses() const { return {}; }
};

}  // namespace kvsim::policy
