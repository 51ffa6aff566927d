#pragma once
/// Decisions made elsewhere, one number per position: how policies name them and get at them.
#include <span>
#include <string>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// `file` (no default) and `dataset`: [n_layers, n_kv_heads, n].
std::vector<ParamSpec> external_table_params(const char* dataset);

/// The numbers of a unit's lanes, and what to call them in messages.
class ExternalTable {
 public:
  ExternalTable(const Params& params, const CacheUnit& unit);

  /// Reads every lane's row. Throws Error(input) when a row is shorter than the prompt.
  void read(std::size_t prompt);
  std::size_t positions() const { return rows_.front().size(); }
  /// Mean over the unit's lanes. Throws Error(input) for a position that the table does not reach.
  double operator()(std::size_t position) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const;

 private:
  std::string file_, dataset_;
  CacheUnit unit_;
  std::vector<std::vector<float>> rows_;
};

}  // namespace kvsim::policy
