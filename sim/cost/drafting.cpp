#include "sim/cost/drafting.hpp"

namespace kvsim::cost {

double tokens_of_round(double acceptance, std::uint64_t gamma) {
  double sum = 1, power = 1;
  for (std::uint64_t i = 0; i < gamma; ++i) sum += power *= acceptance;
  return sum;
}

Drafting fastest_drafting(const Model& model, const Machine& machine, const Serving& full, double draft,
                          double acceptance, std::uint64_t most) {
  const std::uint64_t held = full.prompt + full.generate / 2;
  Drafting best;
  double alone = 0;
  for (std::uint64_t gamma = 0; gamma <= most; ++gamma) {
    Drafting each{.gamma = gamma, .draft = draft, .tokens = tokens_of_round(acceptance, gamma)};
    each.verify = verification_time(model, machine, full, gamma + 1, held).seconds();
    each.per_token = (static_cast<double>(gamma) * draft + each.verify) / each.tokens;
    if (gamma == 0) alone = each.per_token;
    each.speedup = alone / each.per_token;
    if (gamma == 0 || each.per_token < best.per_token) best = each;
  }
  return best;
}

}  // namespace kvsim::cost
