#pragma once
/// Evictions that know the future: upper bounds for the others, not policies that a model could run.
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// What follows a unit's prompt of P tokens: the measured steps, one query each, at consecutive positions. As
/// a prompt does, it begins with the first token that the layer's window still reaches: columns and rows
/// are numbered from there.
///
/// The first query is the first generated token's, or the last prompt token's once more. In the second case
/// the prompt has been compressed, and that query attends the compressed cache. Like every query it finds its
/// own key, whether or not the unit holds it, and besides it what the unit holds of the prompt; no token
/// joins the unit or is evicted for it.
class Future {
 public:
  virtual ~Future() = default;
  virtual std::size_t prompt() const = 0;  ///< P
  /// The position of column 0, as Prompt::first().
  virtual std::size_t first() const { return 0; }
  /// Column of the first step's query: P, or P - 1 when the last prompt row is measured again.
  virtual std::size_t first_position() const = 0;
  virtual std::size_t steps() const = 0;
  /// [steps, first_position + steps]: full rows of the steps' queries, averaged over the unit's query heads;
  /// 0 for keys that a query cannot see.
  virtual MatrixView attention() const = 0;
  /// [steps, head_dim] as attention used them, before the scale.
  virtual MatrixView queries(int query_head) const = 0;
  /// [first_position + steps, head_dim] as the cache holds them.
  virtual MatrixView keys(int lane) const = 0;
  virtual double scale() const = 0;  ///< factor on q.k
};

class Oracle : public Eviction {
 public:
  /// Comes before finish_prompt(); `future` must outlive the last start().
  virtual void set_future(const Future& future) = 0;
  /// Valid after set_future(), for specs with `loss_curve`: [b - 1] is the attention on tokens that are not
  /// resident, averaged over the unit's query heads and summed over the steps, with a budget of b = 1 .. P.
  /// The curve is convex: each further token saves no more than the one before.
  virtual std::vector<double> losses() const { return {}; }
};

}  // namespace kvsim::policy
