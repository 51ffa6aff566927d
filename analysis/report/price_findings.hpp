#pragma once
/// What it takes to serve the winners of a study, in sentences.
#include <string>
#include <vector>

#include "analysis/report/price_list.hpp"
#include "analysis/report/wins.hpp"

namespace kvsim::analysis {

/// Follows the sentence that names the winners: which of them read attention rows that flash attention does
/// not keep, what was priced, and which do not fit the machine at the longest prompt that was priced. Empty:
/// no such rows and no prices. Begins with a space.
std::string winners_price_text(const std::vector<Win>& all, const PriceList& prices);

/// Bytes and seconds of the winner, of the next and of the full cache at the win's budget; empty without
/// prices. Begins with a space.
std::string price_text(const Win& win, const PriceList& prices);

}  // namespace kvsim::analysis
