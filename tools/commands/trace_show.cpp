#include <cmath>
#include <ostream>

#include "tools/commands/command.hpp"
#include "tools/commands/viewed_run.hpp"
#include "tools/printing/visible_text.hpp"

namespace kvsim::tools {
namespace {

/// How a token looks: at a terminal by the colours of its background, else by marks around it.
struct Look {
  std::string colour{};  ///< of a token that is held; empty: none
  bool evidence = false, gone = false, later = false;
  bool operator==(const Look&) const = default;
};

/// Backgrounds of the 256 colours, for shares up to 5, 15, 35, 65 and 100 %, as on the page of kvsim view;
/// letters are black or white.
std::string shade_of(double share) {
  constexpr const char* kShades[] = {"30;48;5;255", "30;48;5;153", "30;48;5;111", "97;48;5;32", "97;48;5;25"};
  return kShades[(share > 0.05) + (share > 0.15) + (share > 0.35) + (share > 0.65)];
}

std::string begin_colours(const Look& look) {
  std::string codes = "\x1b[0";
  if (look.evidence) codes += ";1;4";
  if (look.gone) codes += ";2;9";
  if (look.later) codes += ";2";
  return codes + (look.colour.empty() ? "" : ";" + look.colour) + "m";
}

/// What stands between two looks where there are no colours.
std::string marks_between(const Look& from, const Look& to) {
  const bool apart = from.evidence != to.evidence;
  std::string out;
  if (from.gone && (!to.gone || apart)) out += "~~";
  if (from.evidence && apart) out += "]]";
  if (to.evidence && apart) out += "[[";
  if (to.gone && (!from.gone || apart)) out += "~~";
  return out;
}

/// Tokens as one text that a terminal may get. Tokens that share a character look like the first of them.
std::string marked_text(const std::vector<std::string>& tokens, const std::vector<Look>& looks,
                        bool colours) {
  std::string out, same;
  Look now;
  const auto turn = [&](const Look& to) {
    // A line end takes no colours with it, or a terminal paints the rest of the line.
    for (const char c : visible(same))
      out += c == '\n' && colours ? "\x1b[0m\n" + begin_colours(now) : std::string{c};
    same.clear();
    out += colours ? begin_colours(to) : marks_between(now, to);
    now = to;
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool goes_on = !tokens[i].empty() && (static_cast<unsigned char>(tokens[i][0]) & 0xc0) == 0x80;
    if (!goes_on && !(looks[i] == now)) turn(looks[i]);
    same += tokens[i];
  }
  turn({});
  return out;
}

struct TraceShowOptions : ViewedRunOptions {
  std::string file;
  bool quiet = false;
};

class Shown {
 public:
  explicit Shown(const analysis::CacheView& view) : view_(view), painted_(front_end().painted()) {}

  void text() const {
    std::vector<Look> looks(view_.tokens.size());
    for (std::size_t i = 0; i < looks.size(); ++i) looks[i].evidence = is_evidence(i);
    print(looks);
  }

  void cell(const analysis::ViewedCut& cut, const analysis::ViewedCell& cell, const sim::Cell& asked) const {
    const std::uint64_t step = analysis::answering_step(view_, cut);
    std::ostream& out = front_end().results();
    out << asked.composition.name << " at " << asked.budget.text << ", cut " << cut.text << ", step " << step
        << " of " << cut.decode << ": ";
    if (!cell.skipped.empty()) {
      out << "not run: " << cell.skipped << "\n\n";
      return;
    }
    const std::vector<std::uint32_t> holding = analysis::holding_lanes(view_, cell, step);
    std::vector<Look> looks(view_.tokens.size());
    const std::uint64_t there = cut.prompt + step;
    std::size_t gone = 0, evidence = 0;
    double held = 0;
    for (std::size_t i = 0; i < looks.size(); ++i) {
      Look& look = looks[i];
      look = {"", is_evidence(i), i < there && holding[i] == 0, i >= there};
      const double share = holding[i] / static_cast<double>(cell.lanes.size());
      if (holding[i] > 0) look.colour = shade_of(share);
      gone += look.gone;
      evidence += look.evidence;
      held += look.evidence ? share : 0;
    }
    out << "no lane holds " << gone << " of " << there << " tokens";
    if (evidence > 0)
      out << "; " << std::lround(100 * held / static_cast<double>(evidence))
          << " % of lanes hold the evidence";
    out << "\n\n" << std::flush;
    print(looks);
  }

 private:
  bool is_evidence(std::size_t i) const { return (view_.flags[i] & analysis::kViewedEvidence) != 0; }

  void print(const std::vector<Look>& looks) const {
    std::string text = marked_text(view_.tokens, looks, painted_ != nullptr);
    text += text.ends_with('\n') ? "\n" : "\n\n";
    (painted_ != nullptr ? *painted_ : front_end().results()) << text << std::flush;
  }

  const analysis::CacheView& view_;
  std::ostream* painted_;
};

void show(const TraceShowOptions& options) {
  if (options.policies.empty() != options.budgets.empty())
    usage_error("go together", "--policy and --budget", "Give both, or neither for the text alone.");
  const ViewedRun run = viewed_run(options.file, options, options.quiet);
  const Shown shown(run.view);
  if (run.cells.empty()) shown.text();
  for (const analysis::ViewedCut& cut : run.view.cuts)
    for (std::size_t i = 0; i < run.cells.size(); ++i) shown.cell(cut, cut.cells[i], run.cells[i]);
}

}  // namespace

void add_trace_show(Command trace) {
  Command command = trace.add_subcommand(
      "show",
      "Prints the text of a run with its evidence marked, and with --policy what each policy holds of it",
      R"(Examples:
  kvsim trace show run.h5
  kvsim trace show item.h5 --policy keydiff,snapkv --budget 10% --cut question

Evidence is marked [[so]], and what no lane holds when the first token behind the prompt is chosen ~~so~~.
A terminal shows colours instead, darker where more lanes hold a token, unless NO_COLOR is set.
)");
  const auto options = std::make_shared<TraceShowOptions>();
  command.add_required("TRACE", options->file, "", "Trace");
  add_viewed_run_options(command, *options);
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { show(*options); });
}

}  // namespace kvsim::tools
