#include "traces/capture/model_run.hpp"

#include <limits>

namespace kvsim::capture {

void RunObserver::on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements&, const Elements&,
                             const Elements&) {}
std::uint64_t RunObserver::first_attention_row() const {
  return std::numeric_limits<std::uint64_t>::max();
}
void RunObserver::on_attention(std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t,
                               std::span<const float>) {}
bool RunObserver::wants_layer_output() const {
  return false;
}
bool RunObserver::counts_columns() const {
  return false;
}
void RunObserver::on_layer_output(std::uint32_t, std::span<const float>) {}

}  // namespace kvsim::capture
