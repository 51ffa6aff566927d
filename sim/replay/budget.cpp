#include "sim/replay/budget.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"

namespace kvsim::sim {
namespace {

constexpr std::string_view kForms =
    "A budget is tokens per lane (128, 2K), a share of the prompt (25% or 0.25), or bytes of the whole cache "
    "(64KiB, "
    "2MiB, 1GiB, 500KB, 2MB, 1GB).";

/// As messages name it.
std::string named(std::string_view text) {
  return "budget '" + std::string(text) + "'";
}

/// Of `n` tokens, those that a lane of every layer holds or can hold (`of_layer`), added up.
std::uint64_t held_in_layers(const trace::Model& model, std::size_t n, decltype(held_tokens)* of_layer) {
  std::uint64_t held = 0;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) held += of_layer(model, layer, n);
  return held;
}

/// How many tokens per lane take at most `bits` in all layers, up to the length of the sequence.
std::size_t fitting_tokens(const policy::Composition& composition, const trace::Sequence& sequence,
                           double bits) {
  const trace::Model& model = sequence.model();
  policy::StorageShape shape = storage_shape(sequence);
  const bool together = composition.layer_unit();
  if (together) shape.n_lanes = model.n_kv_heads;
  const double units = together ? 1 : model.n_kv_heads;
  const auto taken = [&](std::size_t tokens) {
    policy::Ledger of_layers;
    if (!model.has_windows()) {
      of_layers = composition.representation->ledger_of_layers(shape, tokens, 0);
    } else {
      for (shape.layer = 0; shape.layer < model.n_layers; ++shape.layer)
        of_layers += composition.representation->ledger(shape, most_held(model, shape.layer, tokens), 0);
    }
    return units * static_cast<double>(of_layers.bits());
  };
  std::size_t tokens = 0;
  while (tokens < sequence.length() && taken(tokens + 1) <= bits) ++tokens;
  return tokens;
}

/// The most tokens per lane that take at most `bytes` as they come, where windows limit some layers.
std::size_t fitting_in_windows(const trace::Sequence& sequence, double bytes) {
  const trace::Model& model = sequence.model();
  const double of_token = static_cast<double>(model.n_kv_heads) * static_cast<double>(token_bytes(sequence));
  const auto fits = [&](std::size_t tokens) {
    return static_cast<double>(held_in_layers(model, tokens, most_held)) * of_token <= bytes;
  };
  std::size_t tokens = 0;
  while (tokens < sequence.length() && fits(tokens + 1)) ++tokens;
  return tokens;
}

std::size_t share_of(const Budget& budget, std::size_t tokens) {
  // Without the 1e-9, 29% of 100 tokens would be 28: 0.29 * 100 is 28.999... in binary.
  return static_cast<std::size_t>(std::floor(budget.value * static_cast<double>(tokens) + 1e-9));
}

[[noreturn]] void refuse_too_little(const Budget& budget) {
  usage_error("comes to less than one token per lane", named(budget.text),
              "A lane always holds the token it is computing.");
}

}  // namespace

policy::StorageShape storage_shape(const trace::Sequence& sequence) {
  const trace::Model& model = sequence.model();
  return {.n_lanes = 1,
          .key_dim = model.head_dim,
          .value_dim = model.token_numbers() - model.head_dim,
          .element_bits = 8 * elem_bytes(sequence.source().header().elem),
          .n_layers = model.n_layers};
}

Budget parse_budget(std::string_view text) {
  const std::string_view whole = trimmed(text);
  Budget budget;
  budget.text = whole;
  std::optional<double> value;
  if (whole.ends_with('%')) {
    budget.unit = Budget::Unit::share;
    value = number_of<double>(trimmed(whole.substr(0, whole.size() - 1)));
    if (value) *value *= 0.01;
  } else if (whole.ends_with('B')) {
    budget.unit = Budget::Unit::bytes;
    value = bytes_of(whole);
  } else if (const std::optional<std::uint64_t> tokens = tokens_of(whole)) {
    value = static_cast<double>(*tokens);
  } else {
    value = number_of<double>(whole);
  }
  if (!value || !std::isfinite(*value)) usage_error("not a budget", named(whole), kForms);
  budget.value = *value;
  if (budget.unit == Budget::Unit::tokens && *value > 0 && *value < 1) {
    std::ostringstream percent;  // 0.07, not the 7.000000000000001 of 100 times that
    percent << std::setprecision(12) << 100 * *value << '%';
    return parse_budget(percent.str());
  }
  const bool tokens = budget.unit == Budget::Unit::tokens;
  if (tokens && budget.value != std::floor(budget.value))
    usage_error("tokens come whole; for a share of the prompt write a percentage", named(whole), kForms);
  if (budget.value <= 0)
    usage_error("must be positive: a lane always holds the token it is computing", named(whole), kForms);
  if (tokens && budget.value > 0x1p31) usage_error("more tokens than any trace holds", named(whole), kForms);
  return budget;
}

std::vector<Budget> parse_budgets(std::string_view text) {
  std::vector<Budget> budgets;
  for (const std::string& item : comma_list(text)) budgets.push_back(parse_budget(item));
  return budgets;
}

std::size_t budget_tokens(const Budget& budget, const trace::Sequence& sequence,
                          const policy::Composition& composition) {
  double tokens = budget.value;
  if (budget.unit == Budget::Unit::share) {
    tokens = static_cast<double>(share_of(budget, sequence.prompt_length()));
  } else if (budget.unit == Budget::Unit::bytes) {
    const trace::Model& model = sequence.model();
    const double lanes = static_cast<double>(model.n_layers) * model.n_kv_heads;
    if (composition.representation)
      tokens = static_cast<double>(fitting_tokens(composition, sequence, 8 * budget.value));
    else if (model.has_windows())
      tokens = static_cast<double>(fitting_in_windows(sequence, budget.value));
    else
      tokens = std::floor(budget.value / (lanes * static_cast<double>(token_bytes(sequence))));
  }
  if (tokens < 1) refuse_too_little(budget);
  return static_cast<std::size_t>(tokens);
}

std::vector<std::size_t> layer_budgets(const Budget& budget, const trace::Sequence& sequence,
                                       const policy::Composition& composition) {
  const trace::Model& model = sequence.model();
  std::vector<std::size_t> out(model.n_layers, budget_tokens(budget, sequence, composition));
  if (budget.unit != Budget::Unit::share) return out;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    out[layer] = share_of(budget, most_held(model, layer, sequence.prompt_length()));
    if (out[layer] < 1) refuse_too_little(budget);
  }
  return out;
}

std::uint64_t prompt_bytes(const trace::Sequence& sequence) {
  const trace::Model& model = sequence.model();
  return held_in_layers(model, sequence.prompt_length(), held_tokens) * model.n_kv_heads *
         token_bytes(sequence);
}

std::size_t token_bytes(const trace::Sequence& sequence) {
  const trace::Model& model = sequence.model();
  return model.token_numbers() * elem_bytes(sequence.source().header().elem);
}

}  // namespace kvsim::sim
