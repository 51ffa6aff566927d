#pragma once
/// What the page of a report draws and answers from: the means of a study with their intervals, how far each
/// policy is behind the best, verdicts, and the figures as data.
#include <string>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "analysis/report/evidence.hpp"
#include "analysis/report/reported_study.hpp"

namespace kvsim::analysis {

/// One JSON object; numbers are exact. `cuts`: the evidence at each.
std::string live_data(const ReportedStudy& study, const std::vector<Evidence>& cuts, const PriceList& prices,
                      const std::vector<Figure>& figures);
/// The same of a page that has figures alone.
std::string live_data(const std::vector<Figure>& figures);

}  // namespace kvsim::analysis
