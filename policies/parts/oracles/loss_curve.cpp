#include "policies/parts/oracles/loss_curve.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "policies/parts/splits/largest_counts.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

constexpr double kRounding = 1e-10;

}  // namespace

std::vector<double> append_losses(const MassAhead& future) {
  std::vector<double> out(future.prompt(), 0.0);
  if (future.n_steps() == 0 || out.empty()) return out;
  std::vector<double> mass(future.from_step(0).begin(),
                           future.from_step(0).begin() + static_cast<std::ptrdiff_t>(future.prompt()));
  std::sort(mass.begin(), mass.end(), std::greater<>());
  for (std::size_t b = out.size(); --b > 0;) out[b - 1] = out[b] + mass[b];
  return out;
}

std::vector<double> gains_of(std::span<const double> losses) {
  std::vector<double> out;
  for (std::size_t b = 1; b < losses.size(); ++b) {
    out.push_back(losses[b - 1] - losses[b]);
    if (out.back() < -kRounding || (b > 1 && out[b - 1] > out[b - 2] + kRounding))
      bug("a loss curve is not convex at a budget of " + std::to_string(b + 1), "gains_of");
  }
  return out;
}

double least_loss(std::span<const std::vector<double>> curves, std::size_t total, std::size_t most) {
  if (total < curves.size() || most == 0) bug("every unit holds at least a token", "least_loss");
  std::vector<std::vector<double>> gains;
  for (const std::vector<double>& curve : curves) gains.push_back(gains_of(curve));
  const std::vector<std::size_t> more = counts_of_largest(gains, total - curves.size(), most - 1);
  double sum = 0;
  for (std::size_t unit = 0; unit < curves.size(); ++unit) sum += curves[unit][more[unit]];
  return sum;
}

}  // namespace kvsim::policy
