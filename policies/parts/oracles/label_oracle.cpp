#include "policies/parts/oracles/label_oracle.hpp"

#include <algorithm>
#include <numeric>

#include "policies/parts/oracles/mass_ahead.hpp"

namespace kvsim::policy {
namespace {

class LabelDecoder final : public Decoder {
 public:
  LabelDecoder(const std::vector<double>& labels, std::size_t origin) : labels_(labels), origin_(origin) {}

  void evict(const Arrival& arrival, std::vector<std::size_t>& victims) override {
    if (!arrival.full) return;
    const auto leaves_first = [&](Position a, Position b) {
      const double of_a = labels_[static_cast<std::size_t>(a) - origin_],
                   of_b = labels_[static_cast<std::size_t>(b) - origin_];
      return of_a != of_b ? of_a < of_b : a < b;
    };
    const auto victim = std::min_element(arrival.slots.begin(), arrival.slots.end(), leaves_first);
    victims.push_back(static_cast<std::size_t>(victim - arrival.slots.begin()));
  }

 private:
  std::vector<double> labels_;
  std::size_t origin_;  ///< position of the first label
};

}  // namespace

ParamSpec generated_param(const char* fallback) {
  return choice_param("generated", fallback, {"append", "evict"},
                      "generated tokens are only appended, or each evicts a token from a full cache");
}

bool label_oracle_appends(const Params& params) {
  return params.word("generated") == "append";
}

LabelOracle::LabelOracle(const Params& params)
    : horizon_(horizon_of(params)), evicts_(!label_oracle_appends(params)) {}

void LabelOracle::set_future(const Future& future) {
  labels_ = label(future, horizon_);
  prompt_ = future.prompt();
  origin_ = future.first();
}

Start LabelOracle::start(std::size_t budget) const {
  Start out;
  out.keep.resize(prompt_);
  std::iota(out.keep.begin(), out.keep.end(), 0);
  const std::size_t n_kept = std::min(budget, prompt_);
  std::nth_element(out.keep.begin(), out.keep.begin() + static_cast<std::ptrdiff_t>(n_kept), out.keep.end(),
                   [&](Position a, Position b) {
                     const double of_a = labels_[static_cast<std::size_t>(a)];
                     const double of_b = labels_[static_cast<std::size_t>(b)];
                     return of_a != of_b ? of_a > of_b : a > b;
                   });
  out.keep.resize(n_kept);
  std::sort(out.keep.begin(), out.keep.end());
  if (evicts_) out.decoder = std::make_unique<LabelDecoder>(labels_, origin_);
  return out;
}

}  // namespace kvsim::policy
