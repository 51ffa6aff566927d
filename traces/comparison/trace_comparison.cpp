#include "traces/comparison/trace_comparison.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

constexpr std::uint64_t kBlockValues = 1 << 18;  ///< of one side, read at once

/// Rows that both traces store, consecutive in both.
struct Run {
  std::uint64_t token, row_a, row_b, count;
};

/// The rows that both traces store of tokens below `end`; an empty list means that every token has a row.
std::vector<Run> common_rows(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b,
                             std::uint64_t end) {
  if (a.empty() && b.empty()) return {{0, 0, 0, end}};
  const auto token_of = [end](const std::vector<std::uint64_t>& list, std::uint64_t row) {
    return list.empty() ? row : row < list.size() ? list[row] : end;
  };
  std::vector<Run> runs;
  for (std::uint64_t i = 0, j = 0;;) {
    const std::uint64_t token = token_of(a, i), other = token_of(b, j);
    if (token >= end || other >= end) return runs;
    if (token == other) {
      const bool follows = !runs.empty() && runs.back().token + runs.back().count == token &&
                           runs.back().row_a + runs.back().count == i &&
                           runs.back().row_b + runs.back().count == j;
      if (follows)
        ++runs.back().count;
      else
        runs.push_back({token, i, j, 1});
    }
    i += token <= other ? 1 : 0;
    j += other <= token ? 1 : 0;
  }
}

Elem coarser(Elem a, Elem b) {
  return default_tolerance(a) < default_tolerance(b) ? b : a;
}

std::uint64_t total(const std::vector<Run>& runs) {
  std::uint64_t rows = 0;
  for (const Run& run : runs) rows += run.count;
  return rows;
}

class TensorWalk {
 public:
  TensorWalk(const FileTrace& a, const FileTrace& b, const ComparisonOptions& options, Progress& progress,
             TraceComparison& out)
      : a_(a), b_(b), options_(options), progress_(progress), out_(out) {
    const Header &x = a_.header(), &y = b_.header();
    stored_ = coarser(x.elem, y.elem);
    cached_ = {{0, 0, 0, out_.header.tokens}};
    if (holds_queries(x) && holds_queries(y))
      queries_ = common_rows(x.query_token, y.query_token, out_.header.tokens);
    if (!a_.attention().empty() && !b_.attention().empty())
      attention_ = common_rows(x.attention_token, y.attention_token, out_.header.tokens);
    columns_ = a_.has_column_statistics() && x.counted_tokens == y.counted_tokens &&
               x.counted_tokens <= out_.header.tokens;
    output_ =
        a_.has_output_weights() && b_.has_output_weights() && x.model.hidden_size == y.model.hidden_size;
  }

  void run() {
    tell_what_is_left_out();
    progress_.total = total_values();
    for (layer_ = 0; layer_ < model().n_layers; ++layer_) {
      if (!queries_.empty()) compare_rows("q", Tensor::query, queries_);
      compare_rows("k", Tensor::key, cached_);
      if (!model().values_in_keys) compare_rows("v", Tensor::value, cached_);
      if (!attention_.empty()) compare_attention();
      if (columns_) compare_columns();
      if (output_) compare_output_weights();
    }
  }

 private:
  const Model& model() const { return a_.header().model; }

  Tolerance tolerance(Elem elem) const {
    const double tensor = options_.tolerance.value_or(default_tolerance(elem));
    return {tensor, options_.row_tolerance.value_or(kRowFactor * tensor)};
  }

  void lone(bool in_a, bool in_b, const char* what) {
    if (in_a != in_b)
      out_.header.notes.push_back(std::string("Only ") + (in_a ? "A" : "B") + " holds " + what + ".");
  }

  void tell_what_is_left_out() {
    const std::uint64_t rows = total(queries_);
    if (rows < out_.header.tokens)
      out_.header.notes.push_back("Queries of " + std::to_string(rows) + " of the " +
                                  std::to_string(out_.header.tokens) + " tokens are in both traces.");
    lone(!a_.attention().empty(), !b_.attention().empty(), "attention rows");
    lone(a_.has_column_statistics(), b_.has_column_statistics(), "column statistics");
    if (a_.has_column_statistics() && b_.has_column_statistics() && !columns_)
      out_.header.notes.emplace_back("Column statistics count other tokens and were not compared.");
    lone(a_.has_output_weights(), b_.has_output_weights(), "output weights");
  }

  std::uint64_t total_values() const {
    std::uint64_t values = total(queries_) * model().n_q_heads * model().head_dim +
                           out_.header.tokens * model().n_kv_heads * (model().head_dim + model().v_head_dim);
    if (columns_) values += 2 * a_.header().counted_tokens * model().n_q_heads;
    if (output_) values += std::uint64_t{model().n_q_heads} * model().v_head_dim * model().hidden_size;
    for (const Run& run : attention_)
      for (std::uint64_t i = 0; i < run.count; ++i)
        values += a_.attention().front().keys(run.row_a + i) * model().n_q_heads;
    return values * model().n_layers;
  }

  /// Throws Error(input) unless all values are finite.
  static void require_finite(const hdf5::InputDataset& dataset, std::uint32_t head, std::uint64_t row,
                             std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        input_error("holds a value that is not finite: head " + std::to_string(head) + ", row " +
                        std::to_string(row) + ", component " + std::to_string(i),
                    dataset.where(), "kvsim trace check says how many there are.");
  }

  void put(const char* part, Tolerance tolerance, DifferenceMeter& meter) {
    out_.tensors.push_back({part, layer_, tolerance, meter.difference()});
  }

  void compare_rows(const char* part, Tensor tensor, const std::vector<Run>& runs) {
    const std::uint64_t dim = schema::tensor_dim(model(), tensor),
                        step = std::max<std::uint64_t>(1, kBlockValues / dim);
    const Tolerance allowed = tolerance(stored_);
    DifferenceMeter meter(allowed.row);
    for (std::uint32_t head = 0; head < schema::tensor_heads(model(), tensor); ++head) {
      for (const Run& run : runs) {
        for (std::uint64_t done = 0; done < run.count; done += step) {
          const std::uint64_t n = std::min(step, run.count - done);
          x_.resize(n * dim);
          y_.resize(n * dim);
          a_.read(tensor, layer_, head, run.row_a + done, n, x_);
          b_.read(tensor, layer_, head, run.row_b + done, n, y_);
          if (tensor != Tensor::value) order_as_a(dim);
          for (std::uint64_t i = 0; i < n; ++i) {
            const std::span<const float> x(x_.data() + i * dim, dim), y(y_.data() + i * dim, dim);
            require_finite(a_.stored(tensor, layer_).dataset(), head, run.row_a + done + i, x);
            require_finite(b_.stored(tensor, layer_).dataset(), head, run.row_b + done + i, y);
            meter.add(head, run.token + done + i, x, y);
          }
          progress_.check();
          progress_.advance(n * dim);
        }
      }
    }
    put(part, allowed, meter);
  }

  /// Puts the rotated components of B's rows where A's layout has them.
  void order_as_a(std::uint64_t dim) {
    const Model &x = a_.header().model, &y = b_.header().model;
    if (x.rope_layout == y.rope_layout) return;
    const std::uint64_t rotated = std::min<std::uint64_t>(x.rotary_dim, y.rotary_dim), half = rotated / 2;
    const bool pairs_apart = x.rope_layout == "half_split";
    row_.resize(rotated);
    for (std::uint64_t begin = x.first_rotated; begin < y_.size(); begin += dim) {
      for (std::uint64_t i = 0; i < half; ++i)
        for (const std::uint64_t second : {0UL, 1UL}) {
          const std::uint64_t apart = i + second * half, together = 2 * i + second;
          row_[pairs_apart ? apart : together] = y_[begin + (pairs_apart ? together : apart)];
        }
      std::copy_n(row_.begin(), 2 * half, y_.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }

  void read_attention(const FileTrace& trace, std::uint32_t head, std::uint64_t row,
                      std::vector<float>& out) {
    const AttentionRows& rows = trace.attention()[layer_];
    out.resize(rows.keys(row));
    rows.read(head, row, out.data());
    require_finite(rows.p.dataset(), head, row, out);
  }

  /// Compares attention rows. Rows that begin at different keys belong to different windows: their tokens are
  /// noted, not compared.
  void compare_attention() {
    const AttentionRows &x = a_.attention()[layer_], &y = b_.attention()[layer_];
    const Tolerance allowed = tolerance(coarser(stored_, coarser(x.elem(), y.elem())));
    DifferenceMeter meter(allowed.row);
    for (std::uint32_t head = 0; head < model().n_q_heads; ++head) {
      for (const Run& run : attention_) {
        for (std::uint64_t i = 0; i < run.count; ++i) {
          const std::uint64_t of_a = run.row_a + i, of_b = run.row_b + i;
          if (x.first_key[of_a] != y.first_key[of_b]) {
            if (head == 0 && tell_window_)
              out_.header.differences.push_back(
                  {"attention", "the row of token " + std::to_string(run.token + i) + " in layer " +
                                    std::to_string(layer_) + " begins at key " +
                                    std::to_string(x.first_key[of_a]) + " against " +
                                    std::to_string(y.first_key[of_b])});
            tell_window_ = false;
            continue;
          }
          read_attention(a_, head, of_a, x_);
          read_attention(b_, head, of_b, y_);
          meter.add(head, run.token + i, x_, y_);
          progress_.check();
          progress_.advance(x_.size());
        }
      }
    }
    put("attention", allowed, meter);
  }

  void compare_columns() {
    const std::uint64_t n = a_.header().counted_tokens;
    const Tolerance allowed = tolerance(stored_);
    DifferenceMeter sums(allowed.row), squares(allowed.row);
    std::vector<float> x_squares(n), y_squares(n);
    x_.resize(n);
    y_.resize(n);
    for (std::uint32_t head = 0; head < model().n_q_heads; ++head) {
      a_.read_column_statistics(layer_, head, x_, x_squares);
      b_.read_column_statistics(layer_, head, y_, y_squares);
      sums.add(head, 0, x_, y_);
      squares.add(head, 0, x_squares, y_squares);
      progress_.check();
      progress_.advance(2 * n);
    }
    put("column_sum", allowed, sums);
    put("column_sum_squares", allowed, squares);
  }

  void compare_output_weights() {
    const std::uint64_t dim = model().hidden_size;
    const Tolerance allowed = tolerance(coarser(*a_.header().output_elem, *b_.header().output_elem));
    DifferenceMeter meter(allowed.row);
    for (std::uint32_t head = 0; head < model().n_q_heads; ++head) {
      x_.resize(model().v_head_dim * dim);
      y_.resize(x_.size());
      a_.read_output_weights(layer_, head, x_);
      b_.read_output_weights(layer_, head, y_);
      for (std::uint64_t c = 0; c < model().v_head_dim; ++c) {
        const std::span<const float> of_a(x_.data() + c * dim, dim), of_b(y_.data() + c * dim, dim);
        require_finite(a_.output_weights()[layer_].dataset(), head, c, of_a);
        require_finite(b_.output_weights()[layer_].dataset(), head, c, of_b);
        meter.add(head, c, of_a, of_b);
      }
      progress_.check();
      progress_.advance(x_.size());
    }
    put("wo", allowed, meter);
  }

  const FileTrace &a_, &b_;
  const ComparisonOptions& options_;
  Progress& progress_;
  TraceComparison& out_;
  Elem stored_ = Elem::f32;  ///< the coarser of q, k and v
  std::vector<Run> cached_, queries_, attention_;
  bool columns_ = false, output_ = false, tell_window_ = true;
  std::uint32_t layer_ = 0;
  std::vector<float> x_, y_, row_;  ///< row_: the rotated components of one
};

}  // namespace

double default_tolerance(Elem elem) {
  return elem == Elem::f32 ? 1e-5 : elem == Elem::f16 ? 8 * 0x1p-11 : 8 * 0x1p-8;
}

bool TraceComparison::same() const {
  return header.differences.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorComparison& tensor) { return tensor.within(); });
}

TraceComparison compare_traces(const FileTrace& a, const FileTrace& b, const ComparisonOptions& options,
                               Progress& progress) {
  TraceComparison out;
  out.header = compare_headers(a.header(), b.header());
  if (out.header.tokens > 0) TensorWalk(a, b, options, progress, out).run();
  return out;
}

double DifferenceMeter::Sums::relative_error() const {
  return difference == 0 ? 0 : std::sqrt(difference / std::max(aa, bb));
}

void DifferenceMeter::add(std::uint32_t head, std::uint64_t row, std::span<const float> a,
                          std::span<const float> b) {
  Sums sums;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    const double difference = std::abs(x - y);
    sums.aa += x * x;
    sums.bb += y * y;
    sums.ab += x * y;
    sums.difference += difference * difference;
    if (difference == 0) continue;
    ++found_.unequal;
    if (difference <= found_.largest) continue;
    found_.largest = difference;
    found_.a = a[i];
    found_.b = b[i];
    found_.head = head;
    found_.row = row;
    found_.component = i;
  }
  ++found_.rows;
  found_.values += a.size();
  sums_.aa += sums.aa;
  sums_.bb += sums.bb;
  sums_.ab += sums.ab;
  sums_.difference += sums.difference;
  const double error = sums.relative_error();
  found_.largest_row_error = std::max(found_.largest_row_error, error);
  if (error > row_tolerance_) found_.first_row_beyond = std::min(found_.first_row_beyond.value_or(row), row);
}

const TensorDifference& DifferenceMeter::difference() {
  found_.relative_error = sums_.relative_error();
  if (sums_.aa > 0 && sums_.bb > 0)
    found_.cosine = std::clamp(sums_.ab / (std::sqrt(sums_.aa) * std::sqrt(sums_.bb)), -1.0, 1.0);
  return found_;
}

}  // namespace kvsim::trace
