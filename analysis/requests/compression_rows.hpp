#pragma once
/// Compression against reuse: one traffic on engines of equal memory that share prefixes, compress what they
/// hold, or do both, beside what the compressed caches still answer.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/requests/serving_tables.hpp"
#include "analysis/results/records.hpp"
#include "policies/api/composition.hpp"
#include "sim/replay/budget.hpp"

namespace kvsim::analysis {

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

}  // namespace kvsim::analysis
