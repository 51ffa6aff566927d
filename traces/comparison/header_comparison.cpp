#include "traces/comparison/header_comparison.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/number_text.hpp"

namespace kvsim::trace {
namespace {

/// Compares the models, shape first: with different shapes the tensors cannot be compared.
class ModelComparison {
 public:
  ModelComparison(const Model& a, const Model& b, HeaderComparison& out) : a_(a), b_(b), out_(out) {}

  void run() {
    same("layers", a_.n_layers, b_.n_layers);
    same("query heads", a_.n_q_heads, b_.n_q_heads);
    same("KV heads", a_.n_kv_heads, b_.n_kv_heads);
    same("head_dim", a_.head_dim, b_.head_dim);
    same("v_head_dim", a_.v_head_dim, b_.v_head_dim);
    same("numbers of a token", a_.token_numbers(), b_.token_numbers());
    out_.same_shape = out_.differences.empty();
    if (!out_.same_shape) return;
    if (a_.hidden_size > 0 && b_.hidden_size > 0)  // 0: not known
      same("hidden_size", a_.hidden_size, b_.hidden_size);
    same("rotary_dim", a_.rotary_dim, b_.rotary_dim);
    same("first_rotated", a_.first_rotated, b_.first_rotated);
    if (a_.rope_layout != b_.rope_layout)  // the same numbers in another order
      out_.notes.push_back("rope_layout: " + a_.rope_layout + " against " + b_.rope_layout +
                           ". B's queries and keys are compared in A's order.");
    close("attn_scale", a_.attn_scale, b_.attn_scale);
    close("rope_attention_factor", a_.rope_attention_factor, b_.rope_attention_factor);
    close("logit_softcap", a_.logit_softcap, b_.logit_softcap);
    list("window of layer", a_.layer_window, b_.layer_window);
    same("chunks for windows", int{a_.chunked}, int{b_.chunked});
    list("RoPE frequency", a_.inv_freq, b_.inv_freq);
    same("sinks", a_.sinks.size(), b_.sinks.size());
    list("sink", a_.sinks, b_.sinks);
    list("rotation of layer", a_.layer_rotation, b_.layer_rotation);
    list("attention factor of rotation", a_.rotation_factor, b_.rotation_factor);
    if (!a_.weights_sha256.empty() && !b_.weights_sha256.empty() && a_.weights_sha256 != b_.weights_sha256)
      out_.notes.emplace_back("The traces name weights of different digests.");
  }

 private:
  template <class T>
  void differ(const std::string& name, const T& x, const T& y) {
    out_.differences.push_back({"model", name + ": " + shortest(x) + " against " + shortest(y)});
  }
  template <class T>
  void same(const char* name, const T& x, const T& y) {
    if (x != y) differ(name, x, y);
  }
  /// Whether two values that each side computed, in float or double, agree within rounding.
  static bool are_close(double x, double y) {
    return std::abs(x - y) <= 1e-5 * std::max(std::abs(x), std::abs(y));
  }
  void close(const std::string& name, double x, double y) {
    if (!are_close(x, y)) differ(name, x, y);
  }
  /// Reports the first entry that differs.
  template <class T>
  void list(const std::string& name, const std::vector<T>& x, const std::vector<T>& y) {
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!are_close(static_cast<double>(x[i]), static_cast<double>(y[i])))
        return differ(name + " " + std::to_string(i), x[i], y[i]);
  }

  const Model &a_, &b_;
  HeaderComparison& out_;
};

/// The token before `token` on its path, -1 at a root.
std::int64_t before(const Header& header, std::uint64_t token) {
  const Segment& segment = header.segments[header.token_segment[token]];
  if (token > segment.begin) return static_cast<std::int64_t>(token) - 1;
  if (segment.parent < 0) return -1;
  const Segment& parent = header.segments[static_cast<std::size_t>(segment.parent)];
  return static_cast<std::int64_t>(parent.begin + parent.count) - 1;
}

/// Finds the length of the common beginning of both traces' tokens.
void compare_tokens(const Header& a, const Header& b, HeaderComparison& out) {
  const std::uint64_t n = std::min(a.n_tokens(), b.n_tokens());
  std::uint64_t withheld = 0;
  const auto differ = [&](const char* part, std::int64_t of_a, std::int64_t of_b) {
    out.differences.push_back({part, "differ from token " + std::to_string(out.tokens) +
                                         " on: " + std::to_string(of_a) + " against " + std::to_string(of_b) +
                                         "; compared up to there"});
  };
  for (; out.tokens < n; ++out.tokens) {
    const std::uint64_t t = out.tokens;
    const std::int32_t id = a.token_id[t], other = b.token_id[t];
    if (id < 0 || other < 0)
      ++withheld;
    else if (id != other)
      return differ("tokens", id, other);
    if (before(a, t) != before(b, t)) return differ("paths", before(a, t), before(b, t));
    if (a.token_position[t] != b.token_position[t])
      return differ("positions", a.token_position[t], b.token_position[t]);
  }
  if (withheld > 0)
    out.notes.push_back(std::to_string(withheld) + " token ids are withheld and were not compared.");
  if (a.n_tokens() != b.n_tokens())
    out.differences.push_back({"tokens", std::to_string(a.n_tokens()) + " against " +
                                             std::to_string(b.n_tokens()) + "; the first " +
                                             std::to_string(n) + " are compared"});
}

/// Compares how the common tokens are divided into segments, because replay takes prompts and decode steps
/// from that.
void compare_segments(const Header& a, const Header& b, HeaderComparison& out) {
  const auto begun = [&](const Header& header) {
    return static_cast<std::size_t>(
        std::count_if(header.segments.begin(), header.segments.end(),
                      [&](const Segment& segment) { return segment.begin < out.tokens; }));
  };
  const std::size_t n = std::min(begun(a), begun(b));
  for (std::size_t s = 0; s < n; ++s) {
    const Segment &x = a.segments[s], &y = b.segments[s];
    const std::string name = "segment " + std::to_string(s);
    if (x.begin != y.begin) {
      out.differences.push_back({"segments", name + " begins at token " + std::to_string(x.begin) +
                                                 " against " + std::to_string(y.begin)});
      return;
    }
    if (x.phase != y.phase) {
      out.differences.push_back(
          {"segments", name + ": " + phase_name(x.phase) + " against " + phase_name(y.phase)});
      return;
    }
  }
  if (begun(a) != begun(b))
    out.differences.push_back({"segments", "the common tokens are " + std::to_string(begun(a)) +
                                               " segments against " + std::to_string(begun(b))});
}

}  // namespace

HeaderComparison compare_headers(const Header& a, const Header& b) {
  HeaderComparison out;
  ModelComparison(a.model, b.model, out).run();
  if (!out.same_shape) return out;
  compare_tokens(a, b, out);
  compare_segments(a, b, out);
  return out;
}

}  // namespace kvsim::trace
