#include "policies/parts/head_bases.hpp"

#include <algorithm>

#include "policies/api/renewing.hpp"

namespace kvsim::policy {
namespace {

/// A layer's prompt as one of its heads sees it.
class HeadPrompt final : public Prompt {
 public:
  HeadPrompt(const Prompt& layer, int lane, int first_query_head)
      : layer_(layer), lane_(lane), first_query_head_(first_query_head) {}
  std::size_t length() const override { return layer_.length(); }
  MatrixView keys(int lane) const override { return layer_.keys(lane_ + lane); }
  MatrixView values(int lane) const override { return layer_.values(lane_ + lane); }
  MatrixView queries(int head) const override { return layer_.queries(first_query_head_ + head); }
  Rotary rotary() const override { return layer_.rotary(); }
  double scale() const override { return layer_.scale(); }
  std::span<const std::uint8_t> classes() const override { return layer_.classes(); }
  MatrixView output_weights(int head) const override {
    return layer_.output_weights(first_query_head_ + head);
  }

 private:
  const Prompt& layer_;
  int lane_, first_query_head_;
};

MatrixView only_row(const MatrixView& all, std::size_t row) {
  return all.data ? MatrixView{all.data + row * all.stride, 1, all.cols, all.stride} : all;
}

/// Calls look(head, view) with the part of `whole` that each head sees; narrow(view, g) keeps query head g of
/// a lane.
template <class View, class Narrow, class Look>
void for_heads(const View& whole, std::size_t n_heads, std::size_t group, bool per_query_head, Narrow narrow,
               Look look) {
  for (std::size_t head = 0; head < n_heads; ++head) {
    if (!per_query_head) {
      look(head, whole.of_lane(head, group));
      continue;
    }
    View one = whole.of_lane(head / group, group);
    narrow(one, head % group);
    look(head, one);
  }
}

}  // namespace

void HeadDecoders::rescore(const Arrival& arrival) {
  for_heads(
      arrival, heads_.size(), group_, per_query_head_,
      [](Arrival& one, std::size_t g) { one.queries = only_row(one.queries, g); },
      [&](std::size_t head, const Arrival& one) { heads_[head]->rescore(one); });
}

void HeadDecoders::close_slots(std::span<const std::size_t> victims) {
  for (const auto& head : heads_) head->close_slots(victims);
}

template <class Look>
void HeadDecoders::for_steps(const Step& step, Look look) {
  for_heads(
      step, heads_.size(), group_, per_query_head_,
      [](Step& one, std::size_t g) {
        one.attention = only_row(one.attention, g);
        if (!one.mass.empty()) one.mass = one.mass.subspan(g, 1);
      },
      [&](std::size_t head, const Step& one) { look(*heads_[head], one); });
}

void HeadDecoders::observe(const Step& step) {
  for_steps(step, [](Decoder& head, const Step& one) { head.observe(one); });
}

void HeadDecoders::renew(const Step& step) {
  for_steps(step, [](Decoder& head, const Step& one) { policy::renew(head, one); });
}

void HeadDecoders::mean_scores(std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  for (const auto& head : heads_) {
    const std::span<const double> scores = head->scores();
    for (std::size_t slot = 0; slot < out.size(); ++slot) out[slot] += scores[slot];
  }
  for (double& score : out) score /= static_cast<double>(heads_.size());
}

HeadBases::HeadBases(const Part& base, const CacheUnit& layer, bool per_query_head)
    : group_(static_cast<std::size_t>(layer.group)), per_query_head_(per_query_head) {
  for (int lane = 0; lane < layer.n_lanes; ++lane) {
    CacheUnit unit = layer.lane(lane);
    if (per_query_head) unit.group = 1;
    for (int g = 0; g < layer.group / unit.group; ++g) heads_.push_back(base.make_eviction(unit));
  }
}

void HeadBases::observe(const PromptRows& rows) {
  PromptRows own = rows;
  const auto [head, query_head] = owner(rows.query_head);
  own.query_head = query_head;
  heads_[head]->observe(own);
}

void HeadBases::observe_columns(const PromptColumns& columns) {
  PromptColumns own = columns;
  const auto [head, query_head] = owner(columns.query_head);
  own.query_head = query_head;
  heads_[head]->observe_columns(own);
}

std::pair<std::size_t, int> HeadBases::owner(int query_head) const {
  const auto head = static_cast<std::size_t>(query_head);
  if (per_query_head_) return {head, 0};
  return {head / group_, static_cast<int>(head % group_)};
}

void HeadBases::finish_prompt(const Prompt& prompt) {
  const std::size_t query_heads = per_query_head_ ? 1 : group_;
  for (std::size_t head = 0; head < heads_.size(); ++head) {
    const std::size_t first = head * query_heads;
    heads_[head]->finish_prompt(
        HeadPrompt(prompt, static_cast<int>(first / group_), static_cast<int>(first)));
  }
}

std::vector<double> HeadBases::mean_scores() const {
  std::vector<double> out(heads_[0]->scores().size());
  for (const auto& head : heads_) {
    const std::span<const double> scores = head->scores();
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += scores[j];
  }
  for (double& score : out) score /= static_cast<double>(heads_.size());
  return out;
}

std::unique_ptr<HeadDecoders> HeadBases::decoders(std::size_t budget, std::span<const Position> slots) const {
  std::vector<std::unique_ptr<Decoder>> out;
  for (const auto& head : heads_)
    if (auto decoder = head->decoder(budget, slots)) out.push_back(std::move(decoder));
  if (out.empty()) return nullptr;
  return std::make_unique<HeadDecoders>(std::move(out), group_, per_query_head_);
}

}  // namespace kvsim::policy
