#include "analysis/report/price_list.hpp"

#include <algorithm>

namespace kvsim::analysis {

PriceList::PriceList(const Records& price) {
  if (price.rows.empty()) return;
  const auto name = [&](const std::vector<Value>& row, const char* key) {
    return exact_field(row[price.column(key)], "");
  };
  const auto real = [&](const std::vector<Value>& row, const char* key) {
    return number(row[price.column(key)]);
  };
  for (const std::vector<Value>& row : price.rows)
    prompt_ = std::max(prompt_, static_cast<std::uint64_t>(real(row, "prompt").value_or(0)));
  for (const std::vector<Value>& row : price.rows) {
    prompt_rows_.emplace(name(row, "params"), name(row, "prompt_rows"));
    const auto peak = real(row, "peak_bytes"), cache = real(row, "cache_bytes"),
               first = real(row, "ttft_seconds"), further = real(row, "tpot_seconds"),
               prompt = real(row, "prompt");
    if (!peak || !cache || !first || !further || !prompt || *prompt != static_cast<double>(prompt_)) continue;
    model_ = name(row, "model");
    machine_ = name(row, "machine");
    generate_ = static_cast<std::uint64_t>(real(row, "generate").value_or(0));
    const Price found{*peak, *cache, *first, *further, name(row, "fits") == "yes"};
    prices_.emplace(std::pair(name(row, "params"), name(row, "budget")), found);
    if (name(row, "policy") == "full") full_ = found;
  }
}

std::string PriceList::prompt_rows(const std::string& params) const {
  const auto found = prompt_rows_.find(params);
  return found == prompt_rows_.end() ? "" : found->second;
}

std::optional<Price> PriceList::at(const std::string& params, const std::string& budget) const {
  for (const std::string& size : {budget, std::string()})  // none: the policy has a size of its own
    if (const auto found = prices_.find({params, size}); found != prices_.end()) return found->second;
  return {};
}

}  // namespace kvsim::analysis
