#include "analysis/report/price_findings.hpp"

#include <algorithm>

#include "analysis/report/wording.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

std::string size_text(double bytes) {
  return bytes_text(static_cast<std::uint64_t>(bytes + 0.5));
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? rounded_text(1e3 * seconds, 1) + " ms" : rounded_text(seconds, 1) + " s";
}

/// "2.02 TiB at most, cache 1.6 GiB, first token after 40 s, then 20.1 ms per token (does not fit)".
std::string numbers_text(const Price& price) {
  return size_text(price.peak_bytes) + " at most" + (price.fits ? "" : ", which does not fit") + ", cache " +
         size_text(price.cache_bytes) + ", first token after " + seconds_text(price.ttft_seconds) +
         ", each further one " + seconds_text(price.tpot_seconds);
}

}  // namespace

std::string winners_price_text(const std::vector<Win>& all, const PriceList& prices) {
  std::vector<std::string> readers, too_large;
  for (const Win& win : all)
    for (const PolicyMean& best : win.best) {
      if (prices.reads_whole_prompt(best.params)) add_once(readers, best.policy);
      const auto price = prices.at(best.params, win.budget);
      if (price && !price->fits)
        add_once(too_large, quoted_name(best.policy) + " at " + budget_text(win.budget) + " (" +
                                size_text(price->peak_bytes) + ")");
    }
  std::string text;
  if (!readers.empty())
    text += " Price: " + names_text(readers) + (readers.size() == 1 ? " reads" : " read") +
            " the attention rows of the whole prompt, which flash attention does not keep: the score matrix "
            "must go through memory, or be computed twice.";
  if (!prices.priced()) return text;
  text += " Prices are for serving " + quoted_name(prices.model()) + " on " + quoted_name(prices.machine()) +
          ", one sequence with a prompt of " + std::to_string(prices.prompt()) + " tokens and " +
          std::to_string(prices.generate()) + " generated ones.";
  if (too_large.empty()) return text;
  text += " These do not fit its memory: " + listed(too_large);
  if (const auto full = prices.full_cache()) text += "; the full cache takes " + size_text(full->peak_bytes);
  return text + '.';
}

std::string price_text(const Win& win, const PriceList& prices) {
  const PolicyMean& best = win.best.front();
  const auto price = prices.at(best.params, win.budget);
  if (!price) return {};
  std::string text = " Price of " + quoted_name(best.policy) + ": " + numbers_text(*price) + '.';
  if (win.next)
    if (const auto next = prices.at(win.next->params, win.budget))
      text += " The next, " + quoted_name(win.next->policy) + ": " + numbers_text(*next) + '.';
  if (const auto full = prices.full_cache()) text += " The full cache: " + numbers_text(*full) + '.';
  return text;
}

}  // namespace kvsim::analysis
