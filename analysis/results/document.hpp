#pragma once
/// One result, whatever it is about: what it is a function of, a tidy table, and what people should be told.
/// Replays, costs, analyses, comparisons and studies are documents; write_document() and Hdf5Export write
/// them, read_tables() reads their tables back.
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "analysis/results/format.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Number of the json document's shape; grows when a key changes or goes.
inline constexpr int kSchemaVersion = 3;

/// A recorded sequence that a result is about.
struct TraceId {
  std::string name, content_sha256;  ///< hash empty: not known
  std::uint64_t prompt = 0, decode = 0;
  std::string cut{};  ///< where the prompt ends; empty: nothing was replayed
};

struct Document {
  std::string analysis;  ///< its kind, as the command calls it
  /// "open" for rows of a replay: json says so instead of the kind, and does not describe their columns.
  std::string loop{};
  std::vector<TraceId> traces;                                            ///< what was looked at
  std::vector<std::pair<std::string, std::vector<std::string>>> lists{};  ///< policies, budgets; in json only
  std::vector<std::pair<std::string, Value>> settings{};  ///< everything else the table depends on
  Records records;
  std::vector<NamedTable> tables{};  ///< of a study, instead of `records`; Format::h5 only
  bool best_first = false;           ///< a row is better than those below it, up to one of another place
  std::vector<std::string> notes{};  ///< lines for people: how to read it, what was left out
  std::string caveat{};              ///< what the numbers cannot tell; below Format::table and md
  /// How people read it; null: numbers rounded, columns that say the same in every row named above once,
  /// notes below, policies by label and without their parameters.
  std::function<void(std::ostream&)> console{};
  /// A page of its own as Format::md; null: the table of all records.
  std::function<void(std::ostream&)> page{};
};

/// json: inputs, columns (key, unit, description) and results; undefined is null there and in jsonl, empty in
/// csv, "-" in table and md. Throws Error(bug) for Format::h5. Failures of `out` are the caller's to look
/// for.
void write_document(std::ostream& out, Format format, const Document& document);

}  // namespace kvsim::analysis
