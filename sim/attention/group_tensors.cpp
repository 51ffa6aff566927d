#include "sim/attention/group_tensors.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "sim/base/error.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {

std::vector<LaneGroup> lane_groups(const trace::Model& model, bool whole_layers) {
  std::vector<LaneGroup> groups;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    if (whole_layers) {
      groups.push_back({layer, 0, model.n_kv_heads});
    } else {
      for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) groups.push_back({layer, head, 1});
    }
  }
  return groups;
}

void will_read(const trace::Sequence& sequence, LaneGroup group, std::size_t first_query) {
  for (std::uint32_t head = group.first_head; head < group.first_head + group.n_lanes; ++head)
    for (const trace::Tensor tensor : {trace::Tensor::key, trace::Tensor::value})
      sequence.will_read(tensor, group.layer, head, 0, sequence.length());
  const auto of_lane = static_cast<std::uint32_t>(sequence.model().group());
  for (std::uint32_t head = group.first_head * of_lane; head < (group.first_head + group.n_lanes) * of_lane;
       ++head)
    sequence.will_read(trace::Tensor::query, group.layer, head, first_query, sequence.length() - first_query);
}

std::size_t held_tokens(const trace::Model& model, std::uint32_t layer, std::size_t n) {
  return n == 0 ? 0 : n - model.first_seen(layer, n - 1);
}

std::size_t most_held(const trace::Model& model, std::uint32_t layer, std::size_t n) {
  const std::int32_t window = model.layer_window[layer];
  return window < 0 ? n : std::min(n, static_cast<std::size_t>(window));
}

GroupTensors::GroupTensors(const trace::Sequence& sequence, LaneGroup group, const policy::Needs& needs)
    : sequence_(&sequence),
      group_(group),
      length_(sequence.length()),
      prompt_(sequence.prompt_length()),
      first_held_(prompt_ - held_tokens(sequence.model(), group.layer, prompt_)),
      key_dim_(sequence.model().head_dim),
      value_dim_(sequence.model().v_head_dim),
      keys_(group.n_lanes * length_ * key_dim_),
      values_(group.n_lanes * length_ * value_dim_) {
  for (std::uint32_t lane = 0; lane < group.n_lanes; ++lane) {
    read_finite(sequence, trace::Tensor::key, group.layer, group.first_head + lane, 0, length_,
                std::span(keys_).subspan(lane * length_ * key_dim_, length_ * key_dim_));
    read_finite(sequence, trace::Tensor::value, group.layer, group.first_head + lane, 0, length_,
                std::span(values_).subspan(lane * length_ * value_dim_, length_ * value_dim_));
    key_panels_.emplace_back(keys(lane));
  }
  if (needs.queries) {
    const std::size_t heads = std::size_t{group.n_lanes} * sequence.model().group();
    queries_.resize(heads * length_ * key_dim_);
    // A trace may lack the queries of the first positions; the plan refuses policies that need those.
    const std::size_t first = sequence.first_query();
    for (std::size_t head = 0; head < heads; ++head)
      read_queries(head, first, length_ - first,
                   std::span(queries_).subspan((head * length_ + first) * key_dim_));
  }
  if (needs.classes) read_classes();
  for (std::size_t position = 0; needs.surprises && position < length_; ++position)
    surprises_.push_back(sequence.surprise(position));
  if (needs.output_weights) read_output_weights();
}

std::uint8_t class_of_flags(std::uint32_t flags) {
  return static_cast<std::uint8_t>((flags & trace::kFlagSpecial ? policy::kSpecialToken : 0) |
                                   (flags & trace::kFlagPunctuation ? policy::kPunctuation : 0));
}

void GroupTensors::read_classes() {
  classes_.resize(length_);
  for (std::size_t position = 0; position < length_; ++position)
    classes_[position] = class_of_flags(sequence_->flags(position));
}

void GroupTensors::read_output_weights() {
  const trace::Model& model = sequence_->model();
  const std::size_t heads = std::size_t{group_.n_lanes} * model.group(),
                    size = value_dim_ * model.hidden_size;
  const std::uint32_t first = group_.first_head * model.group();
  output_weights_.resize(heads * size);
  for (std::size_t head = 0; head < heads; ++head)
    sequence_->source().read_output_weights(group_.layer, first + static_cast<std::uint32_t>(head),
                                            std::span(output_weights_).subspan(head * size, size));
}

void GroupTensors::read_queries(std::size_t query_head, std::size_t first, std::size_t n,
                                std::span<float> out) const {
  read_finite(*sequence_, trace::Tensor::query, group_.layer, model_head(query_head), first, n,
              out.first(n * key_dim_));
}

void GroupTensors::read_rows(std::size_t query_head, std::size_t first, std::size_t n, float* out,
                             std::size_t stride) const {
  trace::read_recorded_rows(*sequence_, group_.layer, model_head(query_head), first, n, out, stride);
}

void GroupTensors::read_columns(std::size_t query_head, std::span<float> sum,
                                std::span<float> sum_squares) const {
  sequence_->source().read_column_statistics(group_.layer, model_head(query_head), sum, sum_squares);
}

std::uint32_t GroupTensors::model_head(std::size_t query_head) const {
  return group_.first_head * sequence_->model().group() + static_cast<std::uint32_t>(query_head);
}

MatrixView GroupTensors::PromptView::queries(int query_head) const {
  if (all_->queries_.empty()) return Prompt::queries(query_head);
  return prompt_of(all_->queries(at(query_head, all_->sequence_->model().group())));
}

std::span<const std::uint8_t> GroupTensors::PromptView::classes() const {
  if (all_->classes_.empty()) return Prompt::classes();
  return std::span(all_->classes_).subspan(first(), length());
}

std::span<const float> GroupTensors::PromptView::surprises() const {
  if (all_->surprises_.empty()) return Prompt::surprises();
  return std::span(all_->surprises_).subspan(first(), length());
}

MatrixView GroupTensors::PromptView::output_weights(int query_head) const {
  if (all_->output_weights_.empty()) return Prompt::output_weights(query_head);
  return all_->output_weights(at(query_head, all_->sequence_->model().group()));
}

namespace {

constexpr std::uint32_t kExponent = 0x7f800000U;

bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & kExponent) != kExponent;
}

}  // namespace

void read_finite(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer,
                 std::uint32_t head, std::uint64_t first, std::uint64_t n, std::span<float> out) {
  sequence.read(tensor, layer, head, first, n, out);
  unsigned bad = 0;  // the loop has no branch, so its time is small beside the arithmetic that follows
  for (const float x : out) bad |= is_finite(x) ? 0U : 1U;
  if (bad == 0) return;
  std::size_t i = 0;
  while (is_finite(out[i])) ++i;
  static constexpr const char* kNames[] = {"query", "key", "value"};
  input_error(std::string(kNames[static_cast<std::size_t>(tensor)]) + " of layer " + std::to_string(layer) +
                  ", head " + std::to_string(head) + ", position " +
                  std::to_string(first + i / (out.size() / n)) + " is " + std::to_string(out[i]),
              sequence.source().name(), "kvsim trace check says what else is wrong with it.");
}

}  // namespace kvsim::sim
