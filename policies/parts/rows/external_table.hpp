#pragma once
/// Tables from a file with one number per position: how policies declare and read them.
#include <string>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// `file` (no default) and `dataset`: [n_layers, n_kv_heads, n].
std::vector<ParamSpec> external_table_params(const char* dataset);

/// The numbers of a unit's lanes, and their name in messages.
class ExternalTable {
 public:
  ExternalTable(const Params& params, const CacheUnit& unit);
  ExternalTable(std::string file, std::string dataset, const CacheUnit& unit);

  /// Reads every lane's row. Throws Error(input) when a row is shorter than the prompt.
  void read(std::size_t prompt);
  std::size_t positions() const { return rows_.front().size(); }
  /// Returns the mean over the unit's lanes. Throws Error(input) for a position beyond the end of the table.
  double operator()(std::size_t position) const;
  /// The rows from position `first` to `end` whose number is not 0.
  std::vector<Position> marked(std::size_t first, std::size_t end) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const;

 private:
  std::string file_, dataset_;
  CacheUnit unit_;
  std::vector<std::vector<float>> rows_;
};

}  // namespace kvsim::policy
