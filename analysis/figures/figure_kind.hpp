#pragma once
/// Every figure kvsim draws: `kvsim plot` has a name for each, a report shows all that its tables allow. To
/// add one: an entry in the list of its subject, which stands at the end of a file here.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/drawing/figure.hpp"
#include "sim/replay/decisions.hpp"

namespace kvsim::analysis {

/// What figures are made of.
struct FigureTables {
  Records results{};                        ///< columns of records_of(rows), all scopes; may hold no row
  std::map<std::string, Records> tables{};  ///< means, differences, ranks, hash, importance, ... by name
  std::optional<sim::Decisions> decisions{};
  std::string source = "DIR";  ///< where they stand, as commands shown beside figures name it

  /// Null when it is not there or holds no row.
  const Records* find(const std::string& name) const;
};

/// What to show, where there is a choice; empty: the figure's own rule, which its remark tells.
struct FigureChoice {
  std::string metric{}, cut{}, budget{}, trace{}, workload{};
  std::vector<std::string> policies{};
  std::optional<std::uint32_t> layer{}, head{};
  bool gap = false;  ///< of quality: gaps to the best policy alone

  /// Whether a policy is chosen, or all are.
  bool wants(const std::string& policy) const;
};

/// What the columns of Figure::data are called; empty: the column is left out.
struct DataKeys {
  std::string panel{};  ///< "cut" is left out where there is one panel
  std::string series{}, x{};
  std::string y{}, value{};  ///< of charts and of heat maps; empty: as the metric that is shown
};

/// The description of a figure: what it is called, what it is made of, how it becomes panels and sentences.
struct FigureKind {
  const char* name = "";
  const char* summary = "";  ///< one line, for help
  std::string needs{};       ///< what must be there, for the message when there is nothing to draw
  /// The most telling first; none when the tables lack what it needs. What nobody chose and `draw` does, it
  /// says in the choice, which the command shows. Name, command and numbers may be left to `build`. Throws
  /// Error(usage) with the nearest names for a choice the tables do not have.
  std::function<std::vector<Figure>(const FigureTables& tables, FigureChoice& choice)> draw{};
  /// The analysis whose table it shows, where that is not results; `kvsim analyze` makes it.
  const char* table = "";
  /// Of that table, where no other room knows it; null: one does.
  const std::vector<ColumnInfo>& (*columns)() = nullptr;
  DataKeys data{};
  bool compares_cuts = false;  ///< `draw` takes results of every cut; of one cut otherwise

  /// What `draw` makes of the tables, complete.
  std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) const;
};

/// In the order of a report.
const std::vector<FigureKind>& figure_kinds();
/// Throws Error(usage) with the nearest names.
const FigureKind& figure_kind(std::string_view name);

/// The figures of a kind. Results of several cuts show one each, the chosen or
/// the first, which titles name; the names of other cuts than `prompt` end with
/// theirs.
std::vector<Figure> figures_of(const FigureKind& kind, const FigureTables& tables,
                               const FigureChoice& choice);

/// The tables of one cut.
FigureTables tables_at(const FigureTables& tables, const std::string& cut);

// For builders.

/// The numbers of the panels as a table: of charts series, x, y, low, high; of heat maps x, y, value; of
/// timelines series (what a colour means), y, count, begin, end. Categories by name.
Records figure_data(const Figure& figure, const DataKeys& keys);

/// "kvsim plot NAME SOURCE --metric ...", with the choices made.
std::string plot_command(const std::string& name, const FigureTables& tables, const FigureChoice& choice);

/// `wanted` if it is one of `known`. Throws Error(usage) with the nearest of them.
const std::string& known_name(const std::string& wanted, const std::vector<std::string>& known,
                              const std::string& option);

}  // namespace kvsim::analysis
