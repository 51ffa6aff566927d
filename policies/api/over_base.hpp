#pragma once
/// For evictions that stand around another one.
#include <memory>
#include <utility>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

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
