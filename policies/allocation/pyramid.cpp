// Gives more to lower layers.
#include <algorithm>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy::pyramid {
namespace {

class Pyramid final : public Allocation {
 public:
  explicit Pyramid(const Params& params) : beta_(params.real("beta")), variant_(params.word("variant")) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (variant_ == "exact" && !request.even()) return per_layer(request, leaning(rooms(request)));
    if (variant_ != "exact") require_even(request, "pyramid(variant=" + variant_ + ")");
    const Headroom room = headroom(request);
    if (variant_ == "kvpress") return per_layer(request, kvpress(room, request));
    if (variant_ == "factory") return per_layer(request, factory(room, request.n_layers));
    return per_layer(request, exact(room, request.n_layers));
  }

 private:
  using Above = std::vector<std::size_t>;

  /// A straight line over the layers with mean `mean`, last layer mean / beta, first layer at most `most`.
  Above exact(const Headroom& room, std::size_t n_layers) const {
    const auto mean = static_cast<double>(room.mean);
    const double first = std::min(2 * mean - mean / beta_, static_cast<double>(room.most));
    std::vector<double> ideal(n_layers, mean);
    for (std::size_t i = 0; n_layers > 1 && i < n_layers; ++i) ideal[i] = line(first, mean, i, n_layers);
    return largest_remainder(ideal, room.mean * n_layers);
  }

  /// The line as a factor on what each layer brings, for layers that bring different budgets.
  Above leaning(const Rooms& room) const {
    std::vector<double> weights;
    for (std::size_t i = 0; i < room.of.size(); ++i)
      weights.push_back(static_cast<double>(room.of[i].mean) * line(2 - 1 / beta_, 1, i, room.of.size()));
    return shared_out(weights, room.total(), room.most());
  }

  /// The line through whole budgets, window included; no layer comes within a window of the prompt's length.
  /// It is flat if the last layer would not hold its window.
  Above kvpress(const Headroom& room, const AllocationRequest& request) const {
    const std::size_t n_layers = request.n_layers;
    const auto mean = static_cast<double>(room.floor + room.mean), window = static_cast<double>(room.floor),
               prompt = static_cast<double>(request.prompt);
    const double first = std::min(2 * mean - mean / beta_, prompt - window), last = 2 * mean - first;
    Above out(n_layers, room.mean);
    if (n_layers == 1 || first < last || last < window) return out;
    for (std::size_t i = 0; i < n_layers; ++i)
      out[i] = half_even(line(first, mean, i, n_layers)) - room.floor;
    return out;
  }

  /// Whole steps, rounded down: later layers keep the remainder of the step. Flat for prompts shorter than
  /// twice the budget above the window.
  Above factory(const Headroom& room, std::size_t n_layers) const {
    Above out(n_layers, room.mean);
    if (n_layers == 1 || room.most + room.floor < 2 * room.mean) return out;
    const auto least = static_cast<std::size_t>(static_cast<double>(room.mean) / beta_);
    const std::size_t first = std::min(2 * room.mean - least, room.most);
    const std::size_t step = (first - (2 * room.mean - first)) / (n_layers - 1);
    for (std::size_t i = 0; i < n_layers; ++i) out[i] = first - i * step;
    return out;
  }

  /// The line from `first` in layer 0 with mean `mean`.
  static double line(double first, double mean, std::size_t layer, std::size_t n_layers) {
    const double last = 2 * mean - first;
    return first - (first - last) * static_cast<double>(layer) / static_cast<double>(n_layers - 1);
  }

  double beta_;
  std::string variant_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "pyramid",
      .summary = "budgets fall linearly from the first layer to the last",
      .paper =
          "Cai, Zhang, Gao, Liu, Li, Liu, Lu, Xiong, Dong, Hu, Xiao, PyramidKV: Dynamic KV Cache Compression "
          "based on Pyramidal Information Funneling, arXiv 2024, https://arxiv.org/abs/2406.02069",
      .details =
          "With m the mean budget above the eviction's floor, the last layer gets m / beta above it, the "
          "first 2m - m / beta, and those between lie on the line; no layer gets more than the prompt, and "
          "then the line is flatter. Whole numbers by largest remainder, so the total is exact. "
          "variant=factory: the same line in whole steps rounded down, equal budgets for prompts shorter "
          "than 2m. variant=kvpress: m includes the floor, each layer is rounded, equal budgets when the "
          "last layer would fall below the floor.",
      .departures = {{"KVCache-Factory rounds down step by step and spends more than it was given, 4 % at "
                      "128 tokens in 32 layers",
                      "exact total, largest remainder; variant=factory"},
                     {"kvpress rounds each layer, and gives all layers the same at small budgets",
                      "exact total, and a pyramid at every budget; variant=kvpress"},
                     {"paper: the step divides by m, the number of layers",
                      "by the layers less one, as codes do"}},
      .params = {real_param("beta", "20", {1, 1e6}, "mean budget over the last layer's; 1 is uniform"),
                 variant_param({"kvpress", "factory"})},
      .rule = AllocationRule{.inexact = published_variant, .make = made<Pyramid>}};
}

}  // namespace kvsim::policy::pyramid
