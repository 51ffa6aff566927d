#pragma once
/// For evictions that stand around another one.
#include <memory>
#include <string>
#include <utility>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {

/// Throws Error(usage) where the base of `policy`, which ranks the prompt when it ends, takes it token by
/// token.
inline void refuse_streaming(const std::string& policy, const Part& base) {
  if (base.make_eviction({.head_dim = 1, .value_dim = 1})->streams_prompt())
    usage_error(policy + " ranks the prompt when it ends, its base takes it token by token",
                "base=" + base.text());
}

/// A Kind, Eviction or a class of it, whose base sees the rows of the prompt as they come.
template <class Kind>
class OverBase : public Kind {
 public:
  std::size_t prompt_rows() const final { return base_->prompt_rows(); }
  void observe(const PromptRows& rows) final { base_->observe(rows); }
  std::size_t rows_beside_columns() const final { return base_->rows_beside_columns(); }
  void observe_columns(const PromptColumns& columns) final { base_->observe_columns(columns); }

 protected:
  /// `arguments`: of Kind.
  template <class... Arguments>
  explicit OverBase(std::unique_ptr<Eviction> base, Arguments&&... arguments)
      : Kind(std::forward<Arguments>(arguments)...), base_(std::move(base)) {}

  Eviction& base() { return *base_; }
  const Eviction& base() const { return *base_; }

 private:
  std::unique_ptr<Eviction> base_;
};

}  // namespace kvsim::policy
