#pragma once
/// The table `price` of a study (analysis/cost/price_table.hpp) as findings ask for it.
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

struct Price {
  double peak_bytes = 0, cache_bytes = 0, ttft_seconds = 0, tpot_seconds = 0;
  bool fits = false;  ///< in the machine's memory
};

class PriceList {
 public:
  PriceList() = default;
  /// The table may have no rows: nothing is known then.
  explicit PriceList(const Records& price);

  /// Whether something was priced, not only asked which rows it reads.
  bool priced() const { return !machine_.empty(); }
  const std::string& model() const { return model_; }
  const std::string& machine() const { return machine_; }
  /// The longest prompt that was priced, where the differences are largest, and the tokens after it.
  std::uint64_t prompt() const { return prompt_; }
  std::uint64_t generate() const { return generate_; }

  /// "all", "last 32", "none"; empty: not known.
  std::string prompt_rows(const std::string& params) const;
  /// At the longest prompt; nothing: not priced, or the point cannot be.
  std::optional<Price> at(const std::string& params, const std::string& budget) const;
  std::optional<Price> full_cache() const { return full_; }

 private:
  std::string model_, machine_;
  std::uint64_t prompt_ = 0, generate_ = 0;
  std::map<std::string, std::string> prompt_rows_;               ///< by params
  std::map<std::pair<std::string, std::string>, Price> prices_;  ///< by params and budget
  std::optional<Price> full_;
};

}  // namespace kvsim::analysis
