#include "traces/format/check_columns.hpp"

#include <algorithm>
#include <cmath>

#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

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
    window_ = model.layer_window[layer] < 0 ? n_ : static_cast<std::uint64_t>(model.layer_window[layer]);
    scale_ = model.attn_scale;
    softcap_ = model.logit_softcap;
  }

  Columns run(const Progress& progress) {
    Columns out{std::vector<double>(n_), std::vector<double>(n_)};
    std::vector<float> scores(n_);
    std::vector<double> weights(n_);
    for (std::uint64_t i = 0; i < n_; ++i) {
      if (i % 256 == 0) progress.check();
      const std::uint64_t from = i + 1 - std::min(window_, i + 1);
      std::fill(scores.begin(), scores.end(), 0.0F);
      for (std::uint64_t c = 0; c < dim_; ++c) {
        const float q = queries_[i * dim_ + c];
        const float* key = transposed_.data() + c * n_;
        for (std::uint64_t j = from; j <= i; ++j) scores[j] += q * key[j];
      }
      double largest = -HUGE_VAL, total = 0;
      for (std::uint64_t j = from; j <= i; ++j) largest = std::max(largest, weights[j] = logit(scores[j]));
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
  double logit(float score) const {
    const double scaled = scale_ * static_cast<double>(score);
    return softcap_ > 0 ? softcap_ * std::tanh(scaled / softcap_) : scaled;
  }

  std::uint64_t n_, dim_, window_ = 0;
  double scale_ = 1, softcap_ = 0;
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
    const std::int32_t window = source_.header().model.layer_window[layer_];
    double mass = 0;
    for (std::size_t j = 0; j < sum_.size(); ++j) {
      const double sum = double{sum_[j]}, slack = tolerance_.sum;
      std::size_t viewers = sum_.size() - j;
      if (window >= 0) viewers = std::min(viewers, static_cast<std::size_t>(window));
      if (sum > static_cast<double>(viewers) * (1 + slack))
        return problem("sum", j, "is more than the " + std::to_string(viewers) + " queries that see the key");
      if (double{squares_[j]} > sum * (1 + slack) + kAbsolute)
        return problem("sum_squares", j, "is more than the sum");
      mass += sum;
    }
    const auto queries = static_cast<double>(sum_.size());
    if (std::abs(mass - queries) > tolerance_.mass * queries)
      problem("sum", 0,
              "and its row add up to " + std::to_string(mass) + ", not to the number of queries, " +
                  std::to_string(sum_.size()));
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

}  // namespace

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

}  // namespace kvsim::trace
