#include "traces/format/check.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "traces/format/check_columns.hpp"
#include "traces/format/digest.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

constexpr std::uint64_t kBlockBytes = 1 << 20;
/// Limit on the multiplications for recomputing column statistics, a few seconds' worth.
constexpr std::uint64_t kColumnWork = 1ULL << 33;

class Checker {
 public:
  Checker(const FileTrace& file, Progress& progress) : file_(file), progress_(progress) {}

  CheckReport run() {
    progress_.total = total_bytes();
    std::vector<std::string> digests;
    for (std::uint32_t layer = 0; layer < model().n_layers; ++layer) {
      for (const Tensor tensor : file_.stored_tensors())
        guard([&] { digests.push_back(check_tensor(file_.stored(tensor, layer), file_.header().elem)); });
      if (file_.header().output_elem)
        guard([&] { check_tensor(file_.output_weights()[layer], *file_.header().output_elem); });
      if (file_.has_column_statistics()) guard([&] { check_column_statistics(layer); });
      if (!file_.attention().empty()) guard([&] { check_attention(file_.attention()[layer]); });
    }
    if (segment_digests(file_.header()) != file_.segment_sha256())
      problem(file_.name() + ":/segments/sha256", "does not match the token ids");
    if (digests.size() == model().n_layers * file_.stored_tensors().size()) check_content(std::move(digests));
    guard([&] { file_.require_unchanged(); });
    return std::move(report_);
  }

 private:
  const Model& model() const { return file_.header().model; }

  std::uint64_t total_bytes() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t layer = 0; layer < model().n_layers; ++layer) {
      for (const Tensor tensor : file_.stored_tensors())
        bytes += file_.stored(tensor, layer).dataset().bytes();
      if (file_.header().output_elem) bytes += file_.output_weights()[layer].dataset().bytes();
      if (file_.has_column_statistics())
        bytes += file_.columns()[layer].sum.dataset().bytes() +
                 file_.columns()[layer].sum_squares.dataset().bytes();
      if (!file_.attention().empty()) bytes += file_.attention()[layer].p.dataset().bytes();
    }
    return bytes;
  }

  void problem(const std::string& where, const std::string& what) {
    report_.problems.push_back(where + ": " + what);
  }

  /// Runs one check and records its error, so that a damaged dataset does not hide the damage of the next.
  template <typename Work>
  void guard(Work work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      report_.problems.emplace_back(error.what());
    }
  }

  /// Returns the digest.
  std::string check_tensor(const StoredRows& tensor, Elem elem) {
    const hdf5::InputDataset& dataset = tensor.dataset();
    const std::uint64_t rows = dataset.dims()[1], dim = dataset.dims()[2];
    const std::uint64_t step =
        std::min(rows, tensor.block_rows(std::max<std::uint64_t>(1, kBlockBytes / (dim * elem_bytes(elem)))));
    TensorDigest digest(static_cast<std::uint32_t>(dataset.dims()[0]));
    std::vector<std::byte> stored(step * dim * elem_bytes(elem));
    std::vector<float> values(step * dim);
    std::uint64_t not_finite = 0;
    std::string first;
    for (std::uint32_t head = 0; head < dataset.dims()[0]; ++head) {
      for (std::uint64_t row = 0; row < rows; row += step) {
        progress_.check();
        const std::uint64_t n = std::min(step, rows - row), bytes = n * dim * elem_bytes(elem);
        tensor.read(head, row, n, stored.data());
        digest.update(head, stored.data(), bytes);
        widen(elem, stored.data(), n * dim, values.data());
        for (std::uint64_t i = 0; i < n * dim; ++i) {
          if (std::isfinite(values[i])) continue;
          if (not_finite++ == 0)
            first = "[" + std::to_string(head) + ", " + std::to_string(row + i / dim) + ", " +
                    std::to_string(i % dim) + "]";
        }
        report_.tensor_bytes += bytes;
        progress_.advance(bytes);
      }
    }
    if (not_finite > 0)
      problem(dataset.where(),
              "holds " + std::to_string(not_finite) + " values that are not finite, the first at " + first);
    std::string hex = digest.hex();
    const std::string claimed = dataset.text("sha256");
    if (!claimed.empty() && claimed != hex) problem(dataset.where(), "does not match its sha256");
    return hex;
  }

  void check_column_statistics(std::uint32_t layer) {
    check_digest(file_.columns()[layer].sum);
    check_digest(file_.columns()[layer].sum_squares);
    report_.recomputed_heads +=
        check_columns(file_, layer, kColumnWork / model().n_layers, report_.problems, progress_);
    report_.column_heads += model().n_q_heads;
  }

  /// Checks the digest of a dataset that holds a list of floats per head.
  void check_digest(const StoredRows& stored) {
    const hdf5::InputDataset& dataset = stored.dataset();
    const std::string claimed = dataset.text("sha256");
    if (claimed.empty()) return;
    TensorDigest digest(static_cast<std::uint32_t>(dataset.dims()[0]));
    std::vector<float> values(dataset.dims()[1]);
    for (std::uint32_t head = 0; head < dataset.dims()[0]; ++head) {
      stored.read(head, 0, values.size(), values.data());
      digest.update(head, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
    }
    if (digest.hex() != claimed) problem(dataset.where(), "does not match its sha256");
  }

  void check_attention(const AttentionRows& rows) {
    const hdf5::InputDataset& p = rows.p.dataset();
    const Elem elem = p.type() == hdf5::Type::f32 ? Elem::f32 : Elem::bf16;
    const double tolerance = elem == Elem::f32 ? 1e-3 : 5e-3;
    std::vector<std::byte> stored;
    std::vector<float> values;
    for (std::uint64_t head = 0; head < p.dims()[0]; ++head) {
      for (std::size_t row = 0; row + 1 < rows.ptr.size(); ++row) {
        progress_.check();
        const std::uint64_t n = rows.ptr[row + 1] - rows.ptr[row];
        stored.resize(n * elem_bytes(elem));
        values.resize(n);
        rows.p.read(head, rows.ptr[row], n, stored.data());
        widen(elem, stored.data(), n, values.data());
        double sum = 0;
        bool probabilities = true;
        for (const float value : values) {
          probabilities = probabilities && value >= 0 && value <= 1 + tolerance;
          sum += static_cast<double>(value);
        }
        if (!probabilities || std::abs(sum - 1) > tolerance)
          input_error("row " + std::to_string(row) + " of head " + std::to_string(head) +
                          " is no distribution: sum " + std::to_string(sum),
                      p.where());
        ++report_.attention_rows;
        progress_.advance(stored.size());
      }
    }
  }

  void check_content(std::vector<std::string> digests) {
    for (std::string& list : file_.block_list_digests()) digests.push_back(std::move(list));
    report_.content_sha256 = content_digest(file_.header().token_id, digests);
    if (!file_.content_sha256().empty() && report_.content_sha256 != file_.content_sha256())
      problem(file_.name(), "content_sha256 does not match tokens and tensors");
  }

  const FileTrace& file_;
  Progress& progress_;
  CheckReport report_;
};

}  // namespace

CheckReport check_trace(const std::string& path, Progress& progress) {
  std::unique_ptr<FileTrace> file;
  try {
    file = std::make_unique<FileTrace>(path, ReadOptions{});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    CheckReport report;
    report.problems.emplace_back(error.what());
    return report;
  }
  return Checker(*file, progress).run();
}

}  // namespace kvsim::trace
