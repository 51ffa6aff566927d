// Where the tokens of prompts are found: on the device, in the tiers behind it, or nowhere.
#include <algorithm>

#include "analysis/figures/cost_view.hpp"
#include "analysis/prefix/tier_records.hpp"
#include "sim/base/byte_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostBars = 24;

/// What tells plans apart, and how it is said.
struct Trait {
  const char* key;
  const char* tier;
  const char* said;
};
constexpr Trait kTraits[] = {{"device_policy", "device", ""},  {"device_capacity_bytes", "device", "device "},
                             {"host_policy", "host", "host "}, {"host_capacity_bytes", "host", "host "},
                             {"ssd_policy", "SSD", "SSD "},    {"ssd_capacity_bytes", "SSD", "SSD "}};
constexpr std::pair<const char*, const char*> kParts[] = {
    {"on the device", "device_share"}, {"in host memory", "host_share"}, {"on the SSD", "ssd_share"}};

class TierBars {
 public:
  TierBars(const Records& tiers, const FigureChoice& choice) : tiers_(tiers) {
    const std::size_t window = tiers.column("window"), policy = tiers.column("device_policy");
    std::vector<std::string> policies;
    for (const std::string& each : distinct(tiers, "device_policy")) policies.push_back(name_of(each));
    for (const std::string& wanted : choice.policies) known_name(wanted, policies, "--policy");
    for (std::size_t row = 0; row < tiers.rows.size(); ++row)
      if (exact_field(tiers.rows[row][window], "") == "all" &&
          choice.wants(name_of(exact_field(tiers.rows[row][policy], ""))))
        rows_.push_back(row);
  }

  std::size_t size() const { return rows_.size(); }

  Panel panel() const {
    Timeline out;
    out.x = {.label = "of the tokens of prompts", .low = 0, .high = 1, .percent = true};
    for (const auto& part : kParts) out.colours.emplace_back(part.first);
    out.colours.emplace_back("nowhere: computed");
    for (std::size_t i = 0; i < std::min(rows_.size(), kMostBars); ++i) {
      const auto y = static_cast<double>(i);
      out.y.categories.push_back(label(rows_[i]));
      double end = 0;
      int colour = 0;
      for (const auto& part : kParts) {
        const double share = number(tiers_.rows[rows_[i]][tiers_.column(part.second)]).value_or(0);
        if (share > 0) out.bars.push_back({y, end, end + share, colour, 1});
        end += share;
        ++colour;
      }
      if (end < 1) out.bars.push_back({y, end, 1, colour, 1});
    }
    return {"", std::move(out)};
  }

  /// What all plans share: "device 20 GiB, lru".
  std::string setting() const {
    std::string out;
    for (const Trait& trait : kTraits)
      if (!differs(trait) && !exact_field(field(trait, rows_.front()), "").empty())
        append(out, said(trait, rows_.front()));
    return out;
  }

 private:
  static std::string name_of(const std::string& policy) { return policy.substr(0, policy.find('(')); }
  static void append(std::string& out, const std::string& text) {
    if (!text.empty()) out += (out.empty() ? "" : ", ") + text;
  }

  const Value& field(const Trait& trait, std::size_t row) const {
    return tiers_.rows[row][tiers_.column(trait.key)];
  }
  bool differs(const Trait& trait) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](std::size_t row) { return field(trait, row) != field(trait, rows_.front()); });
  }
  std::string said(const Trait& trait, std::size_t row) const {
    const Value& value = field(trait, row);
    if (const auto bytes = number(value)) return trait.said + bytes_text(static_cast<std::uint64_t>(*bytes));
    const std::string text = exact_field(value, "");
    if (text.empty())
      return std::string_view(trait.key).ends_with("_bytes") ? std::string("no ") + trait.tier : "";
    // Tiers that keep the same blocks as the device need not say so.
    if (*trait.said != '\0' && text == exact_field(field(kTraits[0], row), "")) return "";
    return trait.said + name_of(text);
  }
  std::string label(std::size_t row) const {
    std::string out;
    for (const Trait& trait : kTraits)
      if (differs(trait)) append(out, said(trait, row));
    return out.empty() ? "all requests" : out;
  }

  const Records& tiers_;
  std::vector<std::size_t> rows_{};
};

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records* tiers = tables.find(kTiersTable);
  if (tiers == nullptr) return {};
  const TierBars bars(*tiers, choice);
  if (bars.size() == 0) return {};
  Figure figure;
  figure.name = "tiers";
  figure.panels.push_back(bars.panel());
  const std::string setting = bars.setting();
  figure.title = "Where prompts are found" + (setting.empty() ? "" : ": " + setting);
  figure.reading = "A bar is all prompt tokens of a trace; what a nearer tier has counts there.";
  if (bars.size() > kMostBars)
    figure.remark = "The first " + std::to_string(kMostBars) + " of " + std::to_string(bars.size()) +
                    " plans; others by --policy.";
  figure.command = plot_command("tiers", tables, choice);
  figure.data = figure_data(figure, {.series = "tier", .y = "plan"});
  return {std::move(figure)};
}

}  // namespace

FigureKind tiers_figure() {
  return {"tiers", "where the tokens of prompts are found: on the device, in host memory, on an SSD",
          "rows of kvsim requests tiers", build, kTiersTable};
}

}  // namespace kvsim::analysis
