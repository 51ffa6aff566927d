#include "traces/model/model_run.hpp"

#include <limits>

#include "traces/model/sampling.hpp"

namespace kvsim::model {

void RunObserver::on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                             const Elements&) {}
bool RunObserver::wants_tensors() const {
  return true;
}
bool RunObserver::wants_queries(std::uint64_t, std::uint64_t) const {
  return true;
}
std::uint64_t RunObserver::first_attention_row() const {
  return std::numeric_limits<std::uint64_t>::max();
}
void RunObserver::on_attention(std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t,
                               std::span<const float>) {}
bool RunObserver::wants_layer_output() const {
  return false;
}
bool RunObserver::counts_columns(std::uint64_t) const {
  return false;
}
void RunObserver::on_layer_output(std::uint32_t, std::span<const float>) {}

PassTiming ModelRun::forward_ahead(std::span<const std::int32_t> tokens, RunObserver& observer) {
  return forward(tokens, observer);
}
void ModelRun::settle() {}
void ModelRun::abandon() noexcept {}

TokenChoice ModelRun::most_probable() {
  const std::vector<float> last = logits();
  const LogProbabilities distribution(last);
  if (!distribution.finite()) return {-1, std::numeric_limits<float>::quiet_NaN()};
  const std::int32_t id = choose_token(last, {}, 0);
  return {id, distribution.of(id)};
}

}  // namespace kvsim::model
