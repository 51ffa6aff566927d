// Totals and what they are made of, point by point.
#include <algorithm>

#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 3, kMostBars = 24;

/// Smallest, middle and largest of more than three.
std::vector<double> shown_prompts(const CostView& view) {
  const std::vector<double> all = view.values("prompt");
  if (all.size() <= kMostPanels) return all;
  return {all.front(), all[all.size() / 2], all.back()};
}

class Bars {
 public:
  Bars(const CostView& view, const CostBars& spec) : view_(view), spec_(spec) {
    for (std::size_t part = 0; part < spec.parts.size(); ++part)
      if (somewhere(part)) shown_.push_back(part);
  }

  Panel panel(double prompt, bool named) {
    Timeline out;
    out.x = {.label = spec_.axis, .low = 0.0};
    for (const std::size_t part : shown_) out.colours.emplace_back(spec_.parts[part]);
    for (const std::size_t row : view_.rows()) {
      if (view_.number(row, "prompt") != prompt) continue;
      if (*spec_.limit != '\0' && !out.x.line)
        if (const auto limit = view_.number(row, spec_.limit)) out.x.line = *limit * spec_.unit;
      for (const CostBars::Bar& bar : spec_.bars) add(out, row, bar);
    }
    return {named ? "prompt " + tokens_text(prompt) : "", std::move(out)};
  }

  bool cut() const { return cut_; }
  Records take_data() { return std::move(data_); }

 private:
  double value(std::size_t row, const CostBars::Bar& bar, std::size_t part) const {
    double sum = 0;
    for (const std::string& key : bar.parts[part]) sum += view_.number(row, key).value_or(0);
    return sum * spec_.unit;
  }

  /// Parts that are nothing everywhere need no colour.
  bool somewhere(std::size_t part) const {
    for (const std::size_t row : view_.rows())
      for (const CostBars::Bar& bar : spec_.bars)
        if (value(row, bar, part) > 0) return true;
    return false;
  }

  void add(Timeline& out, std::size_t row, const CostBars::Bar& bar) {
    if (out.y.categories.size() == kMostBars) {
      cut_ = true;
      return;
    }
    const std::string label = view_.label(row, {"prompt"}) + bar.suffix;
    const auto y = static_cast<double>(out.y.categories.size());
    out.y.categories.push_back(label);
    double end = 0;
    for (std::size_t i = 0; i < shown_.size(); ++i) {
      const double size = value(row, bar, shown_[i]);
      data_.rows.push_back({view_.text(row, "prompt"), label, spec_.parts[shown_[i]], size});
      if (size > 0) out.bars.push_back({y, end, end + size, static_cast<int>(i), 1});
      end += size;
    }
  }

  const CostView& view_;
  const CostBars& spec_;
  std::vector<std::size_t> shown_{};  ///< parts
  bool cut_ = false;
  Records data_{{{"prompt", "tokens", "of every sequence"},
                 {"point", "", "policy and what tells it from others"},
                 {"part", "", "what the colour means"},
                 {"value", "", spec_.axis}},
                {}};
};

}  // namespace

std::vector<Figure> cost_bars(const FigureTables& tables, const FigureChoice& choice, const CostBars& spec) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostView view(*costs, choice);
  const std::vector<double> prompts = shown_prompts(view);
  if (prompts.empty()) return {};
  Bars bars(view, spec);
  Figure figure;
  figure.name = spec.figure;
  figure.columns = 1;  // room for names
  for (const double prompt : prompts) figure.panels.push_back(bars.panel(prompt, prompts.size() > 1));
  const std::string setting = view.setting({});
  figure.title = spec.title + (setting.empty() ? "" : ": " + setting);
  figure.reading = spec.reading;
  if (bars.cut())
    figure.remark =
        "The first " + std::to_string(kMostBars) + " bars of a panel; others by --policy and --budget.";
  figure.command = plot_command(spec.figure, tables, choice);
  figure.data = bars.take_data();
  return {std::move(figure)};
}

}  // namespace kvsim::analysis
