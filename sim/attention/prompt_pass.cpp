#include "sim/attention/prompt_pass.hpp"

#include <algorithm>
#include <vector>

#include "sim/attention/query_reader.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {

std::size_t first_prompt_row(const trace::Sequence& sequence, std::size_t rows) {
  const std::size_t wanted = sequence.prompt_length() - rows;
  return rows == 0 ? wanted : wanted / kPromptBlock * kPromptBlock;
}

namespace {

void replay_columns(const GroupTensors& tensors, const Subscription& subscription) {
  const trace::Sequence& sequence = tensors.sequence();
  const std::size_t prompt = sequence.prompt_length(), group = sequence.model().group();
  std::vector<float> sum(prompt), squares(prompt);
  std::vector<double> wide_sum(prompt), wide_squares(prompt);
  for (std::size_t head = 0; head < subscription.n_lanes * group; ++head) {
    tensors.read_columns(subscription.first_lane * group + head, sum, squares);
    std::copy(sum.begin(), sum.end(), wide_sum.begin());
    std::copy(squares.begin(), squares.end(), wide_squares.begin());
    // No row before the first position held sees a later one.
    const auto held = [&](const std::vector<double>& sums) {
      return std::span(sums).subspan(tensors.first_held());
    };
    subscription.observer->observe_columns({static_cast<int>(head), held(wide_sum), held(wide_squares)});
  }
}

}  // namespace

void replay_prompt(const GroupTensors& tensors, std::span<const Subscription> subscriptions,
                   Progress& progress) {
  const trace::Sequence& sequence = tensors.sequence();
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length(), group = model.group(), dim = model.head_dim;
  const std::size_t held_from = tensors.first_held(),
                    first_row = std::max<std::size_t>(trace::first_row(sequence), held_from);
  std::size_t most = 0;
  for (const Subscription& subscription : subscriptions) most = std::max(most, subscription.requirement.rows);
  for (const Subscription& subscription : subscriptions)
    if (subscription.requirement.columns) replay_columns(tensors, subscription);
  const std::size_t wanted = first_prompt_row(sequence, most),
                    start = std::max(wanted, held_from / kPromptBlock * kPromptBlock);
  std::vector<float> queries(kPromptBlock * dim), rows(kPromptBlock * prompt);
  QueryReader reader(tensors);
  progress.advance((start - wanted) * tensors.group().n_lanes * group);
  for (std::size_t lane = 0; lane < tensors.group().n_lanes; ++lane) {
    for (std::size_t first = start, keys; first < prompt; first = keys) {
      progress.check();
      keys = std::min(prompt, (first / kPromptBlock + 1) * kPromptBlock);
      const std::size_t n = keys - first;
      // No observer sees rows that the trace lacks or that the window has left, but the block keeps its
      // shape.
      const std::size_t missing = std::clamp<std::size_t>(first_row, first, keys) - first;
      for (std::size_t g = 0; g < group; ++g) {
        reader.rows(lane * group + g, first, n, std::span(queries).first(n * dim), rows.data(), keys);
        for (const Subscription& subscription : subscriptions) {
          const bool covered =
              lane >= subscription.first_lane && lane < subscription.first_lane + subscription.n_lanes;
          if (!covered || keys + subscription.requirement.rows <= prompt) continue;
          const auto head = static_cast<int>((lane - subscription.first_lane) * group + g);
          const float* seen = rows.data() + missing * keys + held_from;
          subscription.observer->observe({head,
                                          first + missing - held_from,
                                          prompt - held_from,
                                          {seen, n - missing, keys - held_from, keys},
                                          held_from});
        }
      }
      progress.advance(n * group);
    }
  }
  for (const Subscription& subscription : subscriptions)
    subscription.observer->finish_prompt(GroupTensors::PromptView(tensors, subscription.first_lane));
}

}  // namespace kvsim::sim
