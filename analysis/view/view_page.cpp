#include "analysis/view/view_page.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <string_view>
#include <utility>

#include "analysis/drawing/panel_script.hpp"
#include "analysis/drawing/policy_style.hpp"
#include "analysis/report/html.hpp"
#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {

// view_body.html, view_style.css and view_script.js, compiled in (CMakeLists.txt).
std::string_view view_body();
std::string_view view_style();
std::string_view view_script();

namespace {

class Bytes {
 public:
  void byte(std::uint64_t value) { out_ += static_cast<char>(value); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(value | 0x80);
    byte(value);
  }
  template <class List>
  void ascending(const List& numbers) {
    number(numbers.size());
    std::uint64_t before = 0;
    for (const auto each : numbers) {
      number(each - before);
      before = each;
    }
  }
  void text(std::string_view text) { out_ += text; }
  std::string take() && { return std::move(out_); }

 private:
  std::string out_;
};

void put_lane(const std::vector<sim::ResidentInterval>& stays, const ViewedCut& cut, Bytes& out) {
  std::vector<unsigned char> bits((cut.prompt + 7) / 8);
  std::vector<std::vector<std::uint32_t>> changes(cut.decode + 1);
  // A generated token that no stay begins with would have to be taken back.
  for (std::uint64_t step = 1; step <= cut.decode; ++step)
    changes[step].push_back(static_cast<std::uint32_t>(cut.prompt + step - 1));
  for (const sim::ResidentInterval& stay : stays) {
    const auto position = static_cast<std::uint32_t>(stay.position);
    if (stay.first > 0 && position == cut.prompt + stay.first - 1)
      changes[stay.first].erase(changes[stay.first].begin());
    else if (stay.first > 0)
      changes[stay.first].push_back(position);
    else
      bits[position / 8] |= static_cast<unsigned char>(1U << position % 8);
    if (stay.last <= cut.decode) changes[stay.last].push_back(position);
  }
  for (const unsigned char each : bits) out.byte(each);
  for (std::uint64_t step = 1; step <= cut.decode; ++step) {
    std::ranges::sort(changes[step]);
    out.ascending(changes[step]);
  }
}

void put_shares(const std::vector<std::vector<double>>& shares, Bytes& out) {
  for (const std::vector<double>& step : shares)
    for (const double share : step)
      out.byte(static_cast<std::uint64_t>(std::lround(255 * std::clamp(share, 0.0, 1.0))));
}

std::string packed_cell(const ViewedCell& cell, const ViewedCut& cut) {
  Bytes out;
  for (const std::vector<sim::ResidentInterval>& lane : cell.lanes) put_lane(lane, cut, out);
  put_shares(cell.left, out);
  put_shares(cell.kept, out);
  return std::move(out).take();
}

/// Three bits a token, as planes: those of one bit together.
std::string packed_ranks(const ViewedCell& cell) {
  Bytes out;
  for (const std::vector<std::uint8_t>& lane : cell.ranks)
    for (unsigned bit = 0; bit < 3; ++bit)
      for (std::size_t first = 0; first < lane.size(); first += 8) {
        std::uint64_t byte = 0;
        for (std::size_t i = first; i < std::min(first + 8, lane.size()); ++i)
          byte |= std::uint64_t{lane[i] >> bit & 1U} << (i - first);
        out.byte(byte);
      }
  return std::move(out).take();
}

void put_row(const AttendedRow& row, Bytes& out) {
  out.ascending(row.position);
  for (const double share : row.share)
    out.byte(static_cast<std::uint64_t>(std::clamp(std::lround(-16 * std::log2(share)), 0L, 255L)));
}

boost::json::value json_of(const std::optional<bool>& yes) {
  return yes ? boost::json::value(*yes) : boost::json::value(nullptr);
}

/// A view as the bytes that its page unpacks (analysis/view/view_script.js reads what this writes).
///
/// `v` is an unsigned LEB128 number, a list of ascending numbers is its length and their differences, each v.
/// - v length, and a JSON object: names, numbers, and of each cell how many bytes it has below
/// - of each token: v bytes of its text; then all texts; then of each token a byte of ViewedToken bits
/// - of each row: its positions as a list, then of each entry a byte: -16 log2(share), at most 255
/// - of each cut, each cell: per lane, a bit per token of the prompt that is held at step 0, then of each
/// step
///   after it a list of the positions whose state is not that of the step before, where the arriving token is
///   taken as held; then of each measured step, of each entry of its row, a byte: the share of its attention
///   that is left, of 255; then of each measured step two bytes, low first: the share of all attention that
///   is left, of 65534, or 65535 where that is not known
std::string packed_view(const CacheView& view, const std::vector<sim::Cell>& cells) {
  namespace json = boost::json;
  json::array policies, params, styles, budgets, cuts;
  for (const sim::Cell& cell : cells) {
    if (budgets.empty() || budgets.back().as_string() != std::string_view(cell.budget.text))
      budgets.emplace_back(cell.budget.text);
    if (budgets.size() > 1) continue;
    policies.emplace_back(cell.composition.name);
    params.emplace_back(cell.composition.params);
    const PolicyStyle style = policy_style(cell.composition.name);
    styles.push_back(json::array{hex(style.colours[0]), hex(style.colours[1]), style.shape, style.open});
  }
  Bytes stays;
  for (const ViewedCut& cut : view.cuts) {
    json::array described;
    std::vector<std::string> ranks(
        policies.size());  // of the last budget, which are mostly those of the next
    for (std::size_t i = 0; i < cut.cells.size(); ++i) {
      const ViewedCell& cell = cut.cells[i];
      const std::string bytes = packed_cell(cell, cut);
      std::string own = packed_ranks(cell), &before = ranks[i % policies.size()];
      const bool repeats = !own.empty() && own == before;
      json::object said{
          {"skipped", cell.skipped},    {"tokens", cell.budget_tokens},      {"bytes", bytes.size()},
          {"kept", !cell.kept.empty()}, {"ranks", repeats ? 0 : own.size()}, {"repeats", repeats}};
      if (cell.answer) said["answer"] = json::array{cell.answer->text, json_of(cell.answer->right)};
      described.push_back(std::move(said));
      stays.text(bytes);
      if (!repeats) stays.text(own);
      before = std::move(own);
    }
    cuts.push_back(json::object{{"text", cut.text},
                                {"prompt", cut.prompt},
                                {"steps", cut.decode},
                                {"firstStep", cut.first_step},
                                {"answering", answering_step(view, cut)},
                                {"fullRight", json_of(cut.full_right)},
                                {"cells", std::move(described)}});
  }
  const json::object described{{"trace", view.trace},
                               {"model", view.model},
                               {"version", kVersion},
                               {"layers", view.n_layers},
                               {"heads", view.n_kv_heads},
                               {"tokens", view.tokens.size()},
                               {"answer", view.answer},
                               {"firstRow", view.first_row},
                               {"rows", view.rows.size()},
                               {"laneRows", !view.lane_rows.empty()},
                               {"policies", std::move(policies)},
                               {"params", std::move(params)},
                               {"styles", std::move(styles)},
                               {"budgets", std::move(budgets)},
                               {"bestShares", json::value_from(kBestShares)},
                               {"cuts", std::move(cuts)}};
  Bytes out;
  const std::string text = json::serialize(described);
  out.number(text.size());
  out.text(text);
  for (const std::string& token : view.tokens) out.number(token.size());
  for (const std::string& token : view.tokens) out.text(token);
  for (const std::uint8_t flags : view.flags) out.byte(flags);
  for (const AttendedRow& row : view.rows) put_row(row, out);
  for (const std::vector<AttendedRow>& row : view.lane_rows)
    for (const AttendedRow& lane : row) put_row(lane, out);
  out.text(std::move(stays).take());
  return std::move(out).take();
}

}  // namespace

std::string view_page(const CacheView& view, const std::vector<sim::Cell>& cells, const std::string& title) {
  // What a trace holds is compressed data to this page until its own script makes text of it, and nothing
  // else runs or is fetched.
  const std::array<std::pair<std::string_view, std::string>, 5> parts{
      {{"{{policy}}",
        html_escaped("default-src 'none'; style-src " + allowed_content(view_style()) + "; script-src " +
                     allowed_content(view_script()) + "; base-uri 'none'; form-action 'none'")},
       {"{{title}}", html_escaped(title.empty() ? "kvsim view: " + view.trace : title)},
       {"{{style}}", std::string(view_style())},
       {"{{data}}", base64(gzipped(packed_view(view, cells)))},
       {"{{script}}", std::string(view_script())}}};
  std::string out;
  std::string_view rest = view_body();
  for (const auto& [mark, text] : parts) {  // in the order in which the page has them
    const std::size_t at = rest.find(mark);
    out.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return out.append(rest);
}

namespace {

std::optional<bool> yes_or_no(const Value& field) {
  const auto value = number(field);
  return value ? std::optional(*value != 0) : std::nullopt;
}

}  // namespace

void add_answers(const Records& rows, const std::vector<std::string>& items,
                 const std::vector<sim::Cell>& cells, const std::string& where, CacheView& view) {
  for (const char* key :
       {"item", "params", "budget", "cut", "mode", "right", "right_full", "generated", "skipped"})
    if (!has_column(rows, key))
      input_error("has no column '" + std::string(key) + "'", where,
                  "Give rows of kvsim evaluate: --format csv, in --mode greedy or both.");
  const std::size_t item = rows.column("item"), params = rows.column("params"),
                    budget = rows.column("budget"), cut = rows.column("cut"), mode = rows.column("mode"),
                    right = rows.column("right"), full = rows.column("right_full"),
                    generated = rows.column("generated"), skipped = rows.column("skipped");
  bool any = false;
  for (const std::vector<Value>& row : rows.rows) {
    if (exact_field(row[mode]) != "greedy" || !exact_field(row[skipped]).empty() ||
        std::ranges::find(items, exact_field(row[item])) == items.end())
      continue;
    for (ViewedCut& viewed : view.cuts) {
      if (viewed.text != exact_field(row[cut])) continue;
      if (!viewed.full_right) viewed.full_right = yes_or_no(row[full]);
      for (std::size_t i = 0; i < cells.size(); ++i)
        if (!viewed.cells[i].answer && cells[i].composition.params == exact_field(row[params]) &&
            cells[i].budget.text == exact_field(row[budget])) {
          viewed.cells[i].answer = {exact_field(row[generated]), yes_or_no(row[right])};
          any = true;
        }
    }
  }
  if (!any)
    input_error("has no answer to " + joined(items, " or ") +
                    " through these policies' caches at these budgets and cuts",
                where, "Evaluate the same policies, budgets and cuts on the item that was recorded.");
}

}  // namespace kvsim::analysis
