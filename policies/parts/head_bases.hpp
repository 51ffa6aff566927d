#pragma once
/// Runs a scored policy head by head inside a layer whose heads share one resident set.
#include <memory>
#include <utility>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Decoders of all heads over the layer's slots. They only score: their own evict() is not called.
class HeadDecoders {
 public:
  HeadDecoders(std::vector<std::unique_ptr<Decoder>> heads, std::size_t group, bool per_query_head)
      : heads_(std::move(heads)), group_(group), per_query_head_(per_query_head) {}

  void rescore(const Arrival& arrival);
  void close_slots(std::span<const std::size_t> victims);
  void observe(const Step& step);
  void renew(const Step& step);
  /// Mean over heads, one per slot.
  void mean_scores(std::span<double> out) const;

 private:
  /// Calls look(decoder, step) with what each head sees of the step.
  template <class Look>
  void for_steps(const Step& step, Look look);

  std::vector<std::unique_ptr<Decoder>> heads_;
  std::size_t group_;
  bool per_query_head_;
};

/// One object of the base policy per KV head, or per query head.
class HeadBases {
 public:
  HeadBases(const Part& base, const CacheUnit& layer, bool per_query_head);

  std::size_t size() const { return heads_.size(); }
  const Eviction& operator[](std::size_t head) const { return *heads_[head]; }
  std::size_t prompt_rows() const { return heads_[0]->prompt_rows(); }
  void observe(const PromptRows& rows);
  std::size_t rows_beside_columns() const { return heads_[0]->rows_beside_columns(); }
  void observe_columns(const PromptColumns& columns);
  void finish_prompt(const Prompt& prompt);
  /// Returns the mean over heads, one per prompt position.
  std::vector<double> mean_scores() const;
  /// Returns null if the base does not decode.
  std::unique_ptr<HeadDecoders> decoders(std::size_t budget, std::span<const Position> slots) const;

 private:
  /// Returns the head that a query head of the layer belongs to, and its index among that head's own query
  /// heads.
  std::pair<std::size_t, int> owner(int query_head) const;

  std::size_t group_;
  bool per_query_head_;
  std::vector<std::unique_ptr<Eviction>> heads_;
};

}  // namespace kvsim::policy
