#include "analysis/report/price_list.hpp"

#include <algorithm>

namespace kvsim::analysis {

PriceList::PriceList(const Records& price) {
  if (price.rows.empty()) return;
  for (const std::vector<Value>& row : price.rows)
    prompt_ =
        std::max(prompt_, static_cast<std::uint64_t>(RowFields(price, row).number("prompt").value_or(0)));
  for (const std::vector<Value>& fields : price.rows) {
    const RowFields row(price, fields);
    prompt_rows_.emplace(row.text("params"), row.text("prompt_rows"));
    const auto peak = row.number("peak_bytes"), cache = row.number("cache_bytes"),
               first = row.number("ttft_seconds"), further = row.number("tpot_seconds"),
               prompt = row.number("prompt");
    if (!peak || !cache || !first || !further || !prompt || *prompt != static_cast<double>(prompt_)) continue;
    model_ = row.text("model");
    machine_ = row.text("machine");
    generate_ = static_cast<std::uint64_t>(row.number("generate").value_or(0));
    const Price found{*peak, *cache, *first, *further, row.text("fits") == "yes"};
    prices_.emplace(std::pair(row.text("params"), row.text("budget")), found);
    if (row.text("policy") == "full") full_ = found;
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
