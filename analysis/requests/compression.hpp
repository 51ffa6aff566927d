#pragma once
/// Compression of a cache against its reuse, and the served model whose tokens are kept by a policy.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/serving_tables.hpp"
#include "analysis/results/records.hpp"
#include "policies/api/composition.hpp"
#include "sim/replay/budget.hpp"
#include "sim/requests/serving/served_model.hpp"

namespace kvsim::analysis {

// A served model whose tokens are kept by a policy.

/// `served` with its tokens kept as `policy` keeps them at the budget: bytes as of a prompt of `tokens`
/// tokens (stored_token_bytes), and the seconds of sim/cost that the policy adds to prefills and to decoding
/// steps behind prompts of that length. Throws as stored_token_bytes.
serving::ServedModel compressed_model(serving::ServedModel served, const policy::Composition& policy,
                                      const std::optional<sim::Budget>& budget, std::uint64_t tokens);

/// `served` with all tokens stored in the representation of `stored`, which evicts and selects nothing.
/// Memory is counted by cost::sequence_bytes; what steps read and wait for the representation, and what a
/// cached prefix takes, is as of a prompt of `tokens` tokens. Throws Error(usage) where the model's shape
/// does not suit it.
serving::ServedModel represented_model(serving::ServedModel served, const policy::Composition& stored,
                                       std::uint64_t tokens);

// Compression against reuse: one traffic on engines of equal memory that share prefixes, compress what they
// hold, or do both, beside what the compressed caches still answer.

/// What an engine does with the keys and values of prompts.
enum class Keeping {
  neither,  ///< as they come, for their own request alone
  shared,   ///< as they come, and blocks of prompts stay for later ones: prefix caching
  known,    ///< compressed when the question is known: what is kept suits one request alone
  unknown,  ///< compressed before the question is known: blocks stay for later prompts, compressed
};
inline constexpr Keeping kKeepings[] = {Keeping::neither, Keeping::shared, Keeping::known, Keeping::unknown};
const char* keeping_name(Keeping keeping);

struct CompressionGrid {
  /// Its policies say which blocks stay where prompts share them; allocators and the host are not asked.
  ServingGrid serving{};
  std::vector<policy::Composition> policies{};
  std::vector<sim::Budget> budgets{};  ///< may be empty when every policy has a size of its own
  std::optional<Records> answers{};    ///< rows of kvsim evaluate
  double least_full = 0.9;             ///< of the questions of a workload that the full cache must answer
};

/// Items answered right, mean over items with its 95 % interval.
struct RightAnswers {
  double mean = 0;
  std::optional<double> low{}, high{};
  std::uint64_t items = 0;
};

struct CompressionRow {
  Keeping keeping = Keeping::neither;
  const policy::Composition* policy = nullptr;  ///< null: every token as it comes
  std::string budget{};                         ///< as asked; empty: the policy's own size
  double token_bytes = 0;                       ///< on one device
  ServingRun run{};
  std::optional<RightAnswers> right{};  ///< of the answers at cut `prompt` (known) or `question` (unknown)
};

/// By rate, memory, keeping, budget and policy. Rows point to grid.policies. Throws Error(usage) as
/// serving_runs and compressed_model, Error(input) for answers that are no rows of kvsim evaluate.
std::vector<CompressionRow> compression_rows(const requests::RequestTrace& trace, const CompressionGrid& grid,
                                             Progress* progress = nullptr);

/// What the table is called where several are read.
inline constexpr const char* kCompressionTable = "compression";
const std::vector<ColumnInfo>& compression_columns();
Records compression_records(const std::vector<CompressionRow>& rows);

/// For people: a line per engine, by rate and memory.
void write_compression_table(std::ostream& out, const CompressionGrid& grid,
                             const std::vector<CompressionRow>& rows);
/// The same as a page: what is compared, the table, how to read it, what it rests on. `file`: of the trace.
void write_compression_page(std::ostream& out, const CompressionGrid& grid,
                            const std::vector<CompressionRow>& rows, const std::string& file);

}  // namespace kvsim::analysis
