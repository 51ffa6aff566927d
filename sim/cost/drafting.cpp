#include "sim/cost/drafting.hpp"

#include <algorithm>

#include "sim/base/number_text.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/device_pass.hpp"

namespace kvsim::cost {

double tokens_of_round(double acceptance, std::uint64_t gamma) {
  double sum = 1, power = 1;
  for (std::uint64_t i = 0; i < gamma; ++i) sum += power *= acceptance;
  return sum;
}

Drafting fastest_drafting(const Round& round, double acceptance, std::uint64_t most) {
  Drafting best;
  for (std::uint64_t gamma = 0; gamma <= most; ++gamma) {
    Drafting each{.gamma = gamma, .draft = round.draft, .tokens = tokens_of_round(acceptance, gamma)};
    each.verify = round.verify(gamma);
    if (gamma > 0 && round.calibrate) each.calibrate = round.calibrate(each.tokens);
    each.per_token = (static_cast<double>(gamma) * round.draft + each.verify + each.calibrate) / each.tokens;
    each.speedup = round.alone / each.per_token;
    if (gamma == 0 || each.per_token < best.per_token) best = each;
  }
  return best;
}

Drafting fastest_drafting(const Model& model, const Machine& machine, const Serving& full, double draft,
                          double acceptance, std::uint64_t most) {
  const auto verify = [&](std::uint64_t gamma) {
    return verification_time(model, machine, full, gamma + 1, full.prompt + full.generate / 2).seconds();
  };
  return fastest_drafting({.draft = draft, .verify = verify, .alone = verify(0)}, acceptance, most);
}

double layer_parallel_time(const Model& model, const Machine& machine, const Serving& serving,
                           const PassTime& step, std::uint64_t parallel) {
  require_plain_layers(model, "drafting by several layers at once");
  OpTime mlp;
  DevicePass(model, machine, serving).one_mlp(mlp, 1);
  const double layers = real(model.layers), all = step.seconds() - step.host;
  const double attention =
      step[OpClass::attention].seconds + step[OpClass::linear].seconds - layers * mlp.seconds;
  const std::uint64_t alone = std::min<std::uint64_t>(model.layers, 2),
                      groups = ceil_divided(model.layers - alone, parallel);
  double exchange = 0;
  if (parallel > 1) {
    const double sent =
        real((parallel - 1) * serving.batch * model.hidden) * real(serving.runtime.activation_bytes);
    exchange = real(groups) * (machine.device.latency + sent / machine.device.bandwidth);
  }
  return std::max(serving.runtime.host_floor,
                  all - attention * (1 - real(alone + groups) / layers) + exchange);
}

}  // namespace kvsim::cost
