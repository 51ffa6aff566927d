#pragma once
/// Evictions that know the future: bounds for the others, not policies anybody could run.
#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// What becomes of a unit after its prompt of P tokens: S further steps.
class Future {
 public:
  virtual ~Future() = default;
  virtual std::size_t steps() const = 0;
  /// [steps, P + steps]: full rows of the generated tokens' queries, averaged over the unit's query heads; 0
  /// for keys a query cannot see.
  virtual MatrixView attention() const = 0;
  /// [steps, head_dim] as attention used them, before the scale.
  virtual MatrixView queries(int query_head) const = 0;
  /// [P + steps, head_dim] as the cache holds them.
  virtual MatrixView keys(int lane) const = 0;
  virtual double scale() const = 0;  ///< on q.k
};

class Oracle : public Eviction {
 public:
  /// Comes before finish_prompt(); `future` holds until start() has been called for every budget.
  virtual void foresee(const Future& future) = 0;
};

}  // namespace kvsim::policy
