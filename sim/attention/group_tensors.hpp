#pragma once
/// The lanes that are processed together, and their recorded tensors.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/spec.hpp"
#include "sim/attention/key_panels.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

struct LaneGroup {
  std::uint32_t layer = 0, first_head = 0, n_lanes = 1;
};

/// Returns all lanes in order: one group per layer with `whole_layers`, else one per lane.
std::vector<LaneGroup> lane_groups(const trace::Model& model, bool whole_layers);

/// Returns how many of the first `n` tokens a lane of the layer holds when they have come: all, or those that
/// the last one's window or chunk reaches.
std::size_t held_tokens(const trace::Model& model, std::uint32_t layer, std::size_t n);
/// Returns how many of `n` tokens a lane of the layer can ever hold: all, or no more than a window or chunk.
std::size_t most_held(const trace::Model& model, std::uint32_t layer, std::size_t n);

/// Says that the keys and values of a group, and its queries from position `first_query` on, will be read
/// soon (Source::will_read()).
void will_read(const trace::Sequence& sequence, LaneGroup group, std::size_t first_query);

/// TokenClass bits of a token with these trace::TokenFlag bits.
std::uint8_t class_of_flags(std::uint32_t flags);

/// The keys and values of a group's lanes as floats, [lane][position][component], and the queries, token
/// classes, surprises and output weights that `needs` asks for.
class GroupTensors {
 public:
  GroupTensors(const trace::Sequence& sequence, LaneGroup group, const policy::Needs& needs);

  const trace::Sequence& sequence() const { return *sequence_; }
  LaneGroup group() const { return group_; }
  /// The first position of the prompt that the layer holds when it ends: 0, or what its window reaches.
  std::size_t first_held() const { return first_held_; }

  /// [length, dim] of one lane, or of one query head of the group. Queries need Needs::queries.
  MatrixView keys(std::size_t lane) const { return rows(keys_, lane, key_dim_); }
  MatrixView values(std::size_t lane) const { return rows(values_, lane, value_dim_); }
  /// The keys of one lane for products with them.
  const KeyPanels& key_panels(std::size_t lane) const { return key_panels_[lane]; }
  MatrixView queries(std::size_t query_head) const { return rows(queries_, query_head, key_dim_); }
  /// [value_dim, hidden]: the part of the output projection that one query head goes through. Needs
  /// Needs::output_weights.
  MatrixView output_weights(std::size_t query_head) const {
    const std::size_t hidden = sequence_->model().hidden_size;
    return {output_weights_.data() + query_head * value_dim_ * hidden, value_dim_, hidden, hidden};
  }
  /// [n, dim]: one token's rows in lanes (or query heads) [first, first + n). Its queries are empty without
  /// Needs::queries.
  MatrixView token_keys(std::size_t first, std::size_t n, std::size_t position) const {
    return token(keys_, first, n, position, key_dim_);
  }
  MatrixView token_values(std::size_t first, std::size_t n, std::size_t position) const {
    return token(values_, first, n, position, value_dim_);
  }
  MatrixView token_queries(std::size_t first, std::size_t n, std::size_t position) const {
    return queries_.empty() ? MatrixView{} : token(queries_, first, n, position, key_dim_);
  }
  std::uint8_t token_class(std::size_t position) const { return classes_.empty() ? 0 : classes_[position]; }
  float surprise(std::size_t position) const {
    return surprises_.empty() ? std::numeric_limits<float>::quiet_NaN() : surprises_[position];
  }

  /// Returns which query head of the layer is number `query_head` of the group.
  std::uint32_t model_head(std::size_t query_head) const;

  /// Reads queries [first, first + n) of a query head of the group from the trace. `out` has at least n *
  /// head_dim floats.
  void read_queries(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> out) const;

  /// Reads the stored attention rows of a query head of the group (trace::read_recorded_rows()).
  void read_rows(std::size_t query_head, std::size_t first, std::size_t n, float* out,
                 std::size_t stride) const;

  /// Reads the column statistics of a query head of the group, [prompt] each.
  void read_columns(std::size_t query_head, std::span<float> sum, std::span<float> sum_squares) const;

  /// The prompt of a unit that begins with lane `first_lane`, from first_held() on.
  class PromptView final : public policy::Prompt {
   public:
    PromptView(const GroupTensors& all, std::size_t first_lane) : all_(&all), first_lane_(first_lane) {}
    std::size_t length() const override { return all_->prompt_ - first(); }
    std::size_t first() const override { return all_->first_held_; }
    MatrixView keys(int lane) const override { return prompt_of(all_->keys(at(lane, 1))); }
    MatrixView values(int lane) const override { return prompt_of(all_->values(at(lane, 1))); }
    MatrixView queries(int query_head) const override;
    Rotary rotary() const override { return all_->sequence_->model().rotary(all_->group_.layer); }
    double scale() const override { return all_->sequence_->model().attn_scale; }
    double cap() const override { return all_->sequence_->model().logit_softcap; }
    float sink(int query_head) const override {
      return all_->sequence_->model().sink(
          all_->group_.layer, all_->model_head(at(query_head, all_->sequence_->model().group())));
    }
    std::span<const std::uint8_t> classes() const override;
    std::span<const float> surprises() const override;
    MatrixView output_weights(int query_head) const override;

   private:
    std::size_t at(int index, std::size_t per_lane) const {
      return first_lane_ * per_lane + static_cast<std::size_t>(index);
    }
    MatrixView prompt_of(MatrixView all) const {
      return {all.data + first() * all.stride, length(), all.cols, all.stride};
    }
    const GroupTensors* all_;
    std::size_t first_lane_;
  };

 private:
  void read_classes();
  void read_output_weights();

  MatrixView rows(const std::vector<float>& tensor, std::size_t head, std::size_t dim) const {
    return {tensor.data() + head * length_ * dim, length_, dim, dim};
  }
  MatrixView token(const std::vector<float>& tensor, std::size_t first, std::size_t n, std::size_t position,
                   std::size_t dim) const {
    return {tensor.data() + (first * length_ + position) * dim, n, dim, length_ * dim};
  }

  const trace::Sequence* sequence_;
  LaneGroup group_;
  std::size_t length_, prompt_, first_held_, key_dim_, value_dim_;
  std::vector<float> keys_, values_, queries_, output_weights_, surprises_;
  std::vector<KeyPanels> key_panels_;
  std::vector<std::uint8_t> classes_;
};

// Reads tensors for arithmetic, and refuses values that are infinite or not a number before they reach a
// result.

/// Calls sequence.read(), and throws Error(input) naming the first value that is infinite or not a number.
void read_finite(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer,
                 std::uint32_t head, std::uint64_t first, std::uint64_t n, std::span<float> out);

}  // namespace kvsim::sim
