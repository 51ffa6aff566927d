#include "sim/attention/peak_attention.hpp"

#include <algorithm>

#include "policies/api/option_list.hpp"
#include "sim/base/error.hpp"

namespace kvsim::sim {
namespace {

ParamSpec share_spec(const char* name, const char* fallback) {
  return {.name = name, .type = ParamType::real, .fallback = fallback, .min = 0.01, .max = 1};
}
ParamSpec tokens_spec(const char* name, const char* fallback) {
  return {.name = name, .type = ParamType::count, .fallback = fallback, .min = 0, .max = 1 << 30};
}

/// Returns the largest value, of values >= 0. Compilers turn the independent chains into vector instructions.
float largest(std::span<const float> values) {
  constexpr std::size_t kChains = 16;
  float most[kChains] = {};
  std::size_t i = 0;
  for (; i + kChains <= values.size(); i += kChains)
    for (std::size_t c = 0; c < kChains; ++c) most[c] = values[i + c] > most[c] ? values[i + c] : most[c];
  for (; i < values.size(); ++i) most[0] = std::max(most[0], values[i]);
  return *std::max_element(most, most + kChains);
}

}  // namespace

PeakRule parse_peak(std::string_view text) {
  static const std::vector<ParamSpec> specs = {share_spec("threshold", "0.5"), share_spec("low", "0.3"),
                                               share_spec("share", "0.5"), tokens_spec("sinks", "4"),
                                               tokens_spec("recent", "32")};
  const policy::Params params = policy::option_list(text, specs, "peak");
  PeakRule out{params.real("threshold"), params.real("low"),     params.real("share"),
               params.count("sinks"),    params.count("recent"), params.text()};
  if (out.low > out.threshold)
    usage_error("low is above threshold: it is to count more rows, not fewer", "peak " + out.text);
  return out;
}

void find_peak(const PeakRule& rule, std::span<const float> row, std::size_t prompt, Peak& out) {
  out.best = out.paid = 0;
  out.positions.clear();
  const std::size_t end = std::min(row.size(), prompt - std::min(prompt, rule.recent));
  if (rule.sinks >= end) return;
  const std::span<const float> far = row.subspan(rule.sinks, end - rule.sinks);
  out.best = static_cast<double>(largest(far));
  if (out.best < rule.low) return;
  const double least = rule.share * out.best;
  for (std::size_t i = 0; i < far.size(); ++i) {
    const double paid = static_cast<double>(far[i]);
    if (paid < least) continue;
    out.paid += paid;
    out.positions.push_back(static_cast<policy::Position>(rule.sinks + i));
  }
}

}  // namespace kvsim::sim
