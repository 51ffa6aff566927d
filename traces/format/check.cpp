#include "traces/format/check.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/cap_logits.hpp"
#include "sim/base/error.hpp"
#include "traces/format/digest.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

constexpr std::uint64_t kBlockBytes = 1 << 20;
/// Limit on the multiplications for recomputing column statistics, a few seconds' worth.
constexpr std::uint64_t kColumnWork = 1ULL << 33;

// Column statistics.

struct Columns {
  std::vector<double> sum, sum_squares;
};

/// Relative differences that rounding explains, of a sum of probabilities and of the total mass.
struct Tolerance {
  double sum, mass;
};

/// A model that runs in 16 bits may round every probability to 16 bits.
Tolerance tolerance_of(const Capture& capture) {
  const bool f32 = capture.compute_dtype == "f32" || capture.compute_dtype == "float32";
  return f32 ? Tolerance{1e-3, 1e-5} : Tolerance{2e-2, 5e-3};
}
constexpr double kAbsolute = 1e-4;

/// Recomputes the column statistics of one head over queries [0, n) and the keys they see, with the keys laid
/// out so that the inner loop runs over keys.
class Recomputation {
 public:
  Recomputation(const Source& source, std::uint32_t layer, std::uint32_t head)
      : n_(source.header().counted_tokens), dim_(source.header().model.head_dim) {
    const Model& model = source.header().model;
    queries_.resize(n_ * dim_);
    source.read(Tensor::query, layer, head, 0, n_, queries_);
    std::vector<float> keys(n_ * dim_);
    source.read(Tensor::key, layer, head / model.group(), 0, n_, keys);
    transposed_.resize(keys.size());
    for (std::uint64_t j = 0; j < n_; ++j)
      for (std::uint64_t c = 0; c < dim_; ++c) transposed_[c * n_ + j] = keys[j * dim_ + c];
    for (std::uint64_t i = 0; i < n_; ++i) first_seen_.push_back(model.first_seen(layer, i));
    scale_ = model.attn_scale;
    softcap_ = model.logit_softcap;
    sink_ = static_cast<double>(model.sink(layer, head));
  }

  Columns run(const Progress& progress) {
    Columns out{std::vector<double>(n_), std::vector<double>(n_)};
    std::vector<float> scores(n_);
    std::vector<double> weights(n_);
    for (std::uint64_t i = 0; i < n_; ++i) {
      if (i % 256 == 0) progress.check();
      const std::uint64_t from = first_seen_[i];
      std::fill(scores.begin(), scores.end(), 0.0F);
      for (std::uint64_t c = 0; c < dim_; ++c) {
        const float q = queries_[i * dim_ + c];
        const float* key = transposed_.data() + c * n_;
        for (std::uint64_t j = from; j <= i; ++j) scores[j] += q * key[j];
      }
      double largest = sink_;
      for (std::uint64_t j = from; j <= i; ++j) largest = std::max(largest, weights[j] = logit(scores[j]));
      double total = std::exp(sink_ - largest);
      for (std::uint64_t j = from; j <= i; ++j) total += weights[j] = std::exp(weights[j] - largest);
      for (std::uint64_t j = from; j <= i; ++j) {
        const double p = weights[j] / total;
        out.sum[j] += p;
        out.sum_squares[j] += p * p;
      }
    }
    return out;
  }

 private:
  double logit(float score) const { return capped(scale_ * static_cast<double>(score), softcap_); }

  std::uint64_t n_, dim_;
  std::vector<std::uint64_t> first_seen_;  ///< by each query
  double scale_ = 1, softcap_ = 0, sink_ = 0;
  std::vector<float> queries_, transposed_;
};

/// Whether the queries of all counted tokens are stored: queries 0 .. counted - 1 are then rows 0 .. counted
/// - 1.
bool has_counted_queries(const Header& header) {
  if (!holds_queries(header)) return false;
  return header.query_token.empty() ||
         (header.query_token.size() >= header.counted_tokens &&
          header.query_token[header.counted_tokens - 1] == header.counted_tokens - 1);
}

class LayerCheck {
 public:
  LayerCheck(const Source& source, std::uint32_t layer, std::vector<std::string>& problems)
      : source_(source),
        layer_(layer),
        tolerance_(tolerance_of(source.header().capture)),
        problems_(problems),
        sum_(source.header().counted_tokens),
        squares_(sum_.size()) {}

  void read(std::uint32_t head) {
    head_ = head;
    source_.read_column_statistics(layer_, head, sum_, squares_);
  }

  /// Checks the bounds that hold for all sums of probabilities.
  void laws() {
    const Model& model = source_.header().model;
    double mass = 0;
    for (std::size_t j = 0; j < sum_.size(); ++j) {
      const double sum = double{sum_[j]}, slack = tolerance_.sum;
      const std::size_t viewers = model.seen_until(layer_, j, sum_.size()) - j;
      if (sum > static_cast<double>(viewers) * (1 + slack))
        return problem("sum", j, "is more than the " + std::to_string(viewers) + " queries that see the key");
      if (double{squares_[j]} > sum * (1 + slack) + kAbsolute)
        return problem("sum_squares", j, "is more than the sum");
      mass += sum;
    }
    // What sinks take is missing.
    const auto queries = static_cast<double>(sum_.size());
    const double beyond = mass - queries, slack = tolerance_.mass * queries;
    const bool sinks = !model.sinks.empty();
    if (beyond > slack || (beyond < -slack && !sinks))
      problem("sum", 0,
              "and its row add up to " + std::to_string(mass) + ", " + (sinks ? "more than" : "not to") +
                  " the number of queries, " + std::to_string(sum_.size()));
  }

  void compare(const Columns& expected) {
    const auto far = [&](float found, double right) {
      return std::abs(double{found} - right) > tolerance_.sum * right + kAbsolute;
    };
    for (std::size_t j = 0; j < sum_.size(); ++j) {
      if (far(sum_[j], expected.sum[j])) return differs("sum", j, sum_[j], expected.sum[j]);
      if (far(squares_[j], expected.sum_squares[j]))
        return differs("sum_squares", j, squares_[j], expected.sum_squares[j]);
    }
  }

 private:
  void differs(const char* dataset, std::size_t key, float found, double right) {
    problem(dataset, key, "is " + std::to_string(found) + "; queries and keys give " + std::to_string(right));
  }
  void problem(const char* dataset, std::size_t key, const std::string& what) {
    problems_.push_back(source_.name() + ":/layers/" + schema::layer_group(layer_) + "/column/" + dataset +
                        "[" + std::to_string(head_) + ", " + std::to_string(key) + "]: " + what);
  }

  const Source& source_;
  std::uint32_t layer_, head_ = 0;
  Tolerance tolerance_;
  std::vector<std::string>& problems_;
  std::vector<float> sum_, squares_;
};

/// Checks one layer, every query head: a sum is at most the number of queries that see the key, a sum of
/// squares is at most the sum, and the sums add up to the number of queries. If the trace stores all counted
/// queries, recomputes and compares as many heads, from the first on, as `work` multiplications allow.
/// Returns the number of recomputed heads; appends what is wrong to `problems`.
std::uint32_t check_columns(const Source& source, std::uint32_t layer, std::uint64_t work,
                            std::vector<std::string>& problems, Progress& progress) {
  const Header& header = source.header();
  const std::uint64_t counted = header.counted_tokens;
  const std::uint64_t affordable = work / (counted * counted * header.model.head_dim / 2 + 1);
  const std::uint64_t recomputed =
      has_counted_queries(header) ? std::min<std::uint64_t>(header.model.n_q_heads, affordable) : 0;
  LayerCheck check(source, layer, problems);
  for (std::uint32_t head = 0; head < header.model.n_q_heads; ++head) {
    progress.check();
    check.read(head);
    check.laws();
    if (head < recomputed) check.compare(Recomputation(source, layer, head).run(progress));
    progress.advance(2 * counted * sizeof(float));
  }
  return static_cast<std::uint32_t>(recomputed);
}

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
    const double tolerance = rows.elem() == Elem::f32 ? 1e-3 : 5e-3;
    std::vector<float> values;
    for (std::uint64_t head = 0; head < p.dims()[0]; ++head) {
      for (std::size_t row = 0; row + 1 < rows.ptr.size(); ++row) {
        progress_.check();
        values.resize(rows.keys(row));
        rows.read(head, row, values.data());
        double sum = 0;
        bool probabilities = true;
        for (const float value : values) {
          probabilities = probabilities && value >= 0 && value <= 1 + tolerance;
          sum += static_cast<double>(value);
        }
        const bool whole = sum >= 1 - tolerance || !model().sinks.empty();
        if (!probabilities || !whole || sum > 1 + tolerance)
          input_error("row " + std::to_string(row) + " of head " + std::to_string(head) +
                          " is no distribution: sum " + std::to_string(sum),
                      p.where());
        ++report_.attention_rows;
        progress_.advance(values.size() * elem_bytes(rows.elem()));
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
