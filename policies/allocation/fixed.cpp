// Splits by shares that are given beforehand.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/splits/head_matrix.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::policy::fixed {
namespace {

bool is_list(const std::string& text) {
  return text.find_first_not_of("0123456789.:") == std::string::npos;
}

std::vector<double> list_of(const std::string& text) {
  std::vector<double> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    const auto number = number_of<double>(std::string_view(text).substr(at, end - at));
    if (!number)
      usage_error("shares=" + text + " is not a list of numbers between colons", "fixed",
                  "E.g. shares=4:2:1:1");
    out.push_back(*number);
    at = end + 1;
  }
  return out;
}

bool as_tokens(const Params& params) {
  return params.word("as") == "tokens";
}

class Fixed final : public Allocation {
 public:
  explicit Fixed(const Params& params) : shares_(params.word("shares")), as_tokens_(as_tokens(params)) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (is_list(shares_)) {
      const std::vector<double> layers = list_of(shares_);
      if (layers.size() != request.n_layers)
        usage_error("shares=" + shares_ + " speaks of " + std::to_string(layers.size()) +
                        " layers, the run has " + std::to_string(request.n_layers),
                    "fixed");
      return per_layer(request, split(layers, rooms(request)));
    }
    std::vector<double> of_lanes;
    for (const std::vector<double>& heads : head_matrix(request, shares_))
      of_lanes.push_back(std::accumulate(heads.begin(), heads.end(), 0.0));
    const std::vector<double> weights = unit_means(request, of_lanes);
    return per_unit(request, split(weights, rooms(request, request.units_per_layer())));
  }

 private:
  std::vector<std::size_t> split(const std::vector<double>& shares, const Rooms& room) const {
    return as_tokens_ ? whole(shares, room) : shared_out(shares, room.total(), room.most());
  }

  /// Rounds to whole numbers of the same total, except for tokens beyond what a lane can use.
  static std::vector<std::size_t> whole(const std::vector<double>& tokens, const Rooms& room) {
    std::vector<double> usable;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      usable.push_back(std::min(tokens[i], static_cast<double>(room.of[i].most)));
    const double total = std::accumulate(usable.begin(), usable.end(), 0.0);
    return largest_remainder(usable, static_cast<std::size_t>(std::llround(total)));
  }

  std::string shares_;
  bool as_tokens_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "fixed",
      .summary = "shares per layer or head that were decided beforehand",
      .details =
          "The budget above the eviction's floor is split in proportion to the shares by largest remainder; "
          "what a lane cannot use goes evenly to those that can. A list has one number per layer, a file "
          "(JSON, TSV, CSV) one per layer or one per layer and head; kvsim allocate writes such files. "
          "as=tokens: the numbers are tokens per lane above the eviction's floor, whole ones of the same "
          "total by largest remainder, and a lane gets at most the prompt: what kvsim allocate writes of "
          "rules whose total is their own.",
      .params = {required_param("shares",
                                "numbers between colons, one per layer (4:2:1:1), or a file of them"),
                 choice_param(
                     "as", "shares", {"shares", "tokens"},
                     "of the budget above the floor, or tokens above the floor whatever the budget is")},
      .check =
          [](const Params& params) {
            if (is_list(params.word("shares"))) list_of(params.word("shares"));
          },
      .rule = AllocationRule{.inexact = as_tokens, .own_total = as_tokens, .make = made<Fixed>}};
}

}  // namespace kvsim::policy::fixed
