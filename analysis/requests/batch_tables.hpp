#pragma once
/// Batches of a trace that is known in advance as rows, one for each number of requests and method, and as
/// people read them.
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/base/progress.hpp"
#include "sim/requests/serving/batching/batch_run.hpp"
#include "sim/requests/serving/served_model.hpp"

namespace kvsim::analysis {

struct BatchGrid {
  serving::ServedModel served{};
  std::vector<std::uint32_t> requests{64};  ///< of a batch, at most
  std::vector<serving::Batching> methods{serving::Batching::unpadded};
  std::uint64_t memory = 0;  ///< bytes of keys and values on a device
  unsigned threads = 0;      ///< never changes a result; 0: all
};

struct BatchRow {
  serving::BatchSettings settings{};
  serving::BatchSummary summary{};
};

/// Rows in the order of the grid, methods fastest. Throws what serving::plan_batches throws. `progress`
/// counts rows.
std::vector<BatchRow> batch_rows(const requests::RequestTrace& trace, const BatchGrid& grid,
                                 Progress* progress = nullptr);

Records batch_records(const std::vector<BatchRow>& rows, const BatchGrid& grid);
void write_batch_table(std::ostream& out, const BatchGrid& grid, const std::vector<BatchRow>& rows);

}  // namespace kvsim::analysis
