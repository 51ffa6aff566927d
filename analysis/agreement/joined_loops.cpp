#include "analysis/agreement/joined_loops.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "analysis/results/policy_labels.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// What both loops call a cell. The order of the fields is that in which a cell without a partner is
/// explained.
enum Field : std::size_t { kCut, kItem, kBudget, kParams, kSeed, kFields };
constexpr std::array<const char*, kFields> kNames = {"cut", "item", "budget", "policy", "seed"};
using Key = std::array<std::string, kFields>;

/// What one loop says of a cell.
struct LoopCell {
  std::vector<double> values;  ///< one per measure
  bool skipped = false;
  std::string workload{};        ///< of answers
  double right_full = kNoValue;  ///< of answers
};
using Cells = std::map<Key, LoopCell>;

std::string field_text(const Records& table, const std::vector<Value>& row, std::string_view key) {
  return exact_field(row[table.column(key)], "");
}

std::optional<std::size_t> column_if_there(const Records& table, std::string_view key) {
  return has_column(table, key) ? std::optional(table.column(key)) : std::nullopt;
}

/// "a, b, c and 5 more".
std::string some_of(const std::set<std::string>& names) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> shown;
  for (const std::string& name : names)
    if (shown.size() < kShown) shown.push_back(name);
  return joined(shown) +
         (names.size() > kShown ? " and " + std::to_string(names.size() - kShown) + " more" : "");
}

/// Reads the rows of both loops.
class Reader {
 public:
  Reader(const std::vector<const Metric*>& open, const std::vector<const ClosedMeasure*>& closed)
      : open_(open), closed_(closed) {}

  void read_open(const Records& table) {
    const std::size_t scope = table.column("scope"), role = table.column("role"),
                      trace = table.column("trace");
    std::vector<std::optional<std::size_t>> columns;
    for (const Metric* each : open_) columns.push_back(column_if_there(table, each->key));
    for (const std::vector<Value>& row : table.rows) {
      if (exact_field(row[scope], "") != "all") continue;
      std::filesystem::path file = exact_field(row[trace], "");
      if (file.extension() == ".h5") file.replace_extension();
      const Key key = key_of(table, row, file.filename().string());
      if (const std::string kind = exact_field(row[role], ""); kind != "policy") {
        unranked_[kind].insert(field_text(table, row, "policy"));
        left_out_.insert(key[kParams]);
        continue;
      }
      LoopCell cell;
      for (const auto& column : columns)
        cell.values.push_back(column ? number(row[*column]).value_or(kNoValue) : kNoValue);
      if (!open_cells_.try_emplace(key, std::move(cell)).second) twice(key, "a replay");
    }
  }

  void read_closed(const Records& table) {
    const std::size_t item = table.column("item"), skipped = table.column("skipped"),
                      workload = table.column("workload"), turn = table.column("turn"),
                      turns = table.column("turns"), full = table.column("right_full");
    std::vector<std::optional<std::size_t>> columns;
    for (const ClosedMeasure* each : closed_) columns.push_back(column_if_there(table, each->key));
    for (const std::vector<Value>& row : table.rows) {
      const bool alone = exact_field(row[turns], "") == "requests";
      if (!alone && number(row[turn]).value_or(0) != 0) {
        later_turns_ += 1;
        continue;
      }
      for (std::string_view same : {"model", "turns", "prefill", "positions"}) {
        const std::string said = field_text(table, row, same);
        // A policy that streams the prompt does so in a replay, too.
        if (said != "stream") protocols_[std::string(same)].insert(said);
      }
      const Key key = key_of(table, row, exact_field(row[item], ""));
      if (!told_.insert({key, field_text(table, row, "mode")}).second) twice(key, "the answers");
      if (std::ranges::find(params_, key[kParams]) == params_.end()) {
        params_.push_back(key[kParams]);
        labels_.push_back({Value(field_text(table, row, "policy")), Value(key[kParams])});
      }
      LoopCell& cell = closed_cells_[key];
      cell.values.resize(closed_.size(), kNoValue);
      cell.workload = exact_field(row[workload], "");
      cell.skipped = cell.skipped || !exact_field(row[skipped], "").empty();
      if (const auto right = number(row[full])) cell.right_full = *right;
      // What only greedy answers have is undefined in rows of teacher mode, and the other way round.
      for (std::size_t i = 0; i < columns.size(); ++i)
        if (columns[i])
          if (const auto value = number(row[*columns[i]])) cell.values[i] = *value;
      add_once(cuts_, key[kCut]);
      add_once(budgets_, key[kBudget]);
    }
  }

  JoinedLoops joined_loops() {
    check_protocols();
    JoinedLoops out;
    tell_left_out(out.notes);
    std::set<Key> both;
    for (const auto& [key, cell] : open_cells_)
      if (closed_cells_.contains(key)) both.insert(key);
    if (both.empty()) refuse_strangers();
    tell_alone(open_cells_, closed_cells_, "only replayed", out.notes);
    tell_alone(closed_cells_, open_cells_, "only answered", out.notes);
    for (const std::string& cut : cuts_) {
      LoopsAtCut at = at_cut(cut, both);
      if (!at.items.empty()) out.cuts.push_back(std::move(at));
    }
    return out;
  }

 private:
  static Key key_of(const Records& table, const std::vector<Value>& row, std::string item) {
    Key key;
    key[kCut] = field_text(table, row, "cut");
    key[kItem] = std::move(item);
    key[kBudget] = field_text(table, row, "budget");
    key[kParams] = field_text(table, row, "params");
    key[kSeed] = field_text(table, row, "seed");
    return key;
  }

  [[noreturn]] static void twice(const Key& key, const std::string& loop) {
    input_error(loop + " has two rows of " + key[kParams] + " at " + key[kBudget] + ", cut " + key[kCut] +
                    ", seed " + key[kSeed],
                key[kItem], "Give every file once, and rows of one model.");
  }

  void check_protocols() const {
    if (open_cells_.empty())
      usage_error("no rows of a replay", "FILE", "kvsim replay --format csv makes them.");
    if (closed_cells_.empty())
      usage_error("no rows of a model that answers", "FILE", "kvsim evaluate --format csv makes them.");
    for (const auto& [column, values] : protocols_)
      if (values.size() > 1)
        input_error("answers of several: " + some_of(values), "column " + column,
                    "A replay does not name its own. Give the answers of one at a time.");
  }

  [[noreturn]] void refuse_strangers() const {
    std::set<std::string> replayed, answered;
    for (const auto& [key, cell] : open_cells_) replayed.insert(key[kItem]);
    for (const auto& [key, cell] : closed_cells_) answered.insert(key[kItem]);
    std::vector<std::string> common;
    std::set_intersection(replayed.begin(), replayed.end(), answered.begin(), answered.end(),
                          std::back_inserter(common));
    if (common.empty())
      input_error("replayed were " + some_of(replayed) + "; answered were " + some_of(answered),
                  "no item is in both loops",
                  "A trace has the name of its item: kvsim capture --item ID -o ID.h5.");
    input_error("no cell of " + common.front() + " is in both loops", "",
                "Replay and evaluate with the same --policy, --budget, --cut and --seed.");
  }

  void tell_left_out(std::vector<std::string>& notes) const {
    if (const auto own = unranked_.find("own_budget"); own != unranked_.end())
      notes.push_back("Not compared, as they keep what they like whatever the budget: " +
                      joined({own->second.begin(), own->second.end()}) + ".");
    if (const auto oracles = unranked_.find("oracle"); oracles != unranked_.end())
      notes.push_back("Not compared, as no running model serves them: " +
                      joined({oracles->second.begin(), oracles->second.end()}) + ".");
    if (later_turns_ > 0)
      notes.push_back("Not joined: " + std::to_string(later_turns_) +
                      " rows of later turns, which a replay does not have.");
  }

  /// Cells of one loop alone, by the first field that the other one does not know.
  void tell_alone(const Cells& mine, const Cells& others, const std::string& how,
                  std::vector<std::string>& notes) const {
    std::array<std::set<std::string>, kFields> known;
    for (const auto& [key, cell] : others)
      for (std::size_t i = 0; i < kFields; ++i) known[i].insert(key[i]);
    std::array<std::set<std::string>, kFields + 1> strangers;
    std::array<std::uint64_t, kFields + 1> counts{};
    for (const auto& [key, cell] : mine) {
      if (others.contains(key) || left_out_.contains(key[kParams])) continue;
      std::size_t field = 0;
      while (field < kFields && known[field].contains(key[field])) ++field;
      counts[field] += 1;
      strangers[field].insert(field < kFields ? key[field] : key[kItem] + " at " + key[kBudget]);
    }
    for (std::size_t i = 0; i <= kFields; ++i)
      if (counts[i] > 0)
        notes.push_back("Not joined: " + std::to_string(counts[i]) + (counts[i] == 1 ? " cell" : " cells") +
                        ' ' + how + ", of " + (i < kFields ? std::string(kNames[i]) + ' ' : "") +
                        some_of(strangers[i]) + '.');
  }

  LoopsAtCut at_cut(const std::string& cut, const std::set<Key>& both) const {
    LoopsAtCut out;
    out.cut = cut;
    out.open = open_;
    out.closed = closed_;
    out.budgets = budgets_;
    const std::map<std::string, std::string> labels =
        policy_labels(Records{{{"policy", "", ""}, {"params", "", ""}}, labels_});
    std::map<std::string, std::size_t> policies, budgets, items;
    for (const std::string& params : params_) {
      if (left_out_.contains(params)) continue;
      policies[params] = out.policies.size();
      out.policies.push_back({labels.at(params), params});
    }
    for (std::size_t i = 0; i < budgets_.size(); ++i) budgets[budgets_[i]] = i;
    find_items(cut, both, out);
    for (std::size_t i = 0; i < out.items.size(); ++i) items[out.items[i].name] = i;

    const std::size_t n = out.budgets.size() * out.policies.size() * out.items.size();
    out.open_values.assign(open_.size() * n, kNoValue);
    out.closed_values.assign(closed_.size() * n, kNoValue);
    out.ran.assign(n, false);
    // Keys ascend, and of one cell the seeds stand apart: sums are made in one order, whatever the rows'
    // order.
    std::map<std::size_t, std::vector<const Key*>> seeds_of;
    for (const Key& key : both)
      if (key[kCut] == cut)
        seeds_of[out.cell(budgets.at(key[kBudget]), policies.at(key[kParams])) * out.items.size() +
                 items.at(key[kItem])]
            .push_back(&key);
    for (const auto& [place, seeds] : seeds_of) {
      out.ran[place] =
          std::ranges::none_of(seeds, [&](const Key* key) { return closed_cells_.at(*key).skipped; });
      average(open_cells_, seeds, place, n, out.open_values);
      average(closed_cells_, seeds, place, n, out.closed_values);
    }
    return out;
  }

  void find_items(const std::string& cut, const std::set<Key>& both, LoopsAtCut& out) const {
    std::map<std::string, LoopsAtCut::Item> found;
    for (const Key& key : both) {
      if (key[kCut] != cut) continue;
      const LoopCell& cell = closed_cells_.at(key);
      const auto [place, fresh] =
          found.try_emplace(key[kItem], LoopsAtCut::Item{key[kItem], cell.workload, kNoValue});
      if (place->second.workload != cell.workload)
        input_error("is of workload '" + place->second.workload + "' and of '" + cell.workload + "'",
                    key[kItem]);
      if (cell.right_full == cell.right_full) place->second.right_full = cell.right_full;
    }
    for (const auto& [name, item] : found) out.items.push_back(item);
    std::ranges::stable_sort(out.items, [](const auto& a, const auto& b) { return a.workload < b.workload; });
  }

  static void average(const Cells& cells, const std::vector<const Key*>& seeds, std::size_t place,
                      std::size_t n, std::vector<double>& out) {
    const std::size_t measures = cells.at(*seeds.front()).values.size();
    for (std::size_t m = 0; m < measures; ++m) {
      double sum = 0;
      for (const Key* key : seeds) sum += cells.at(*key).values[m];
      out[m * n + place] = sum / static_cast<double>(seeds.size());
    }
  }

  const std::vector<const Metric*>& open_;
  const std::vector<const ClosedMeasure*>& closed_;
  Cells open_cells_, closed_cells_;
  std::set<std::pair<Key, std::string>> told_;
  std::vector<std::string> cuts_, budgets_, params_;
  std::vector<std::vector<Value>> labels_;  ///< policy and params of answers
  std::set<std::string> left_out_;          ///< params of policies that are not compared
  std::map<std::string, std::set<std::string>> unranked_, protocols_;
  std::uint64_t later_turns_ = 0;
};

[[noreturn]] void unknown(std::string_view key, const std::vector<std::string>& known,
                          const std::string& loop) {
  usage_error("policies are not compared by '" + std::string(key) + "'", "--" + loop, suggestion(key, known));
}

}  // namespace

const std::vector<ClosedMeasure>& closed_measures() {
  static const std::vector<ClosedMeasure> kAll = {
      {"right", Better::higher},       {"kl", Better::lower},          {"same_top", Better::higher},
      {"log_p", Better::higher},       {"contains", Better::higher},   {"agreement", Better::higher},
      {"delta_log_p", Better::higher}, {"rms_delta_p", Better::lower}, {"rank", Better::lower}};
  return kAll;
}

const ClosedMeasure& closed_measure(std::string_view key) {
  std::vector<std::string> known;
  for (const ClosedMeasure& each : closed_measures()) {
    if (each.key == key) return each;
    known.emplace_back(each.key);
  }
  unknown(key, known, "closed");
}

std::vector<const Metric*> open_measures() {
  std::vector<const Metric*> out;
  for (const Metric& each : metrics())
    if (each.better != Better::neither) out.push_back(&each);
  return out;
}

const Metric& open_measure(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric* each : open_measures()) {
    if (each->key == key) return *each;
    known.emplace_back(each->key);
  }
  unknown(key, known, "open");
}

bool holds_open_rows(const Records& table) {
  return has_column(table, "trace") && has_column(table, "params") && has_column(table, "scope") &&
         has_column(table, "role") && has_column(table, "seed");
}

bool holds_closed_rows(const Records& table) {
  return has_column(table, "item") && has_column(table, "params") && has_column(table, "mode") &&
         has_column(table, "right_full") && has_column(table, "skipped");
}

JoinedLoops join_loops(const std::vector<Records>& tables, const std::vector<const Metric*>& open,
                       const std::vector<const ClosedMeasure*>& closed) {
  Reader reader(open, closed);
  for (const Records& table : tables) {
    if (holds_open_rows(table)) reader.read_open(table);
    if (holds_closed_rows(table)) reader.read_closed(table);
  }
  return reader.joined_loops();
}

}  // namespace kvsim::analysis
