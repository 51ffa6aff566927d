#pragma once
/// One path of a trace's segment tree as replay wants it: a prompt followed by decode steps, positions 0, 1,
/// 2, ... Of several turns the last is replayed: what was generated in earlier ones is part of its prompt, as
/// in a server that keeps the whole conversation cached between turns.
#include <cstdint>
#include <span>
#include <vector>

#include "traces/source.hpp"

namespace kvsim::trace {

class Sequence {
 public:
  /// Path from the root to the leaf of sequence `index` (of header().sequence_leaf). Its decode steps are the
  /// segments after its last prompt segment, none if it ends with a prompt. Throws Error(input) for a path
  /// without a prompt, or whose RoPE positions are not 0, 1, 2, ...
  Sequence(const Source& source, std::size_t index = 0);

  const Source& source() const { return *source_; }
  const Model& model() const { return source_->header().model; }
  std::uint64_t length() const { return length_; }         ///< T: prompt and decode tokens
  std::uint64_t prompt_length() const { return prompt_; }  ///< P
  std::uint64_t decode_length() const { return length_ - prompt_; }
  /// Tokens of the prompt that were generated, in earlier turns.
  std::uint64_t answered_length() const { return answered_; }
  /// Token (file order) at a position of the path.
  std::uint64_t token(std::uint64_t position) const;
  /// TokenFlag bits of the token at a position, those of flags_known() only.
  std::uint32_t flags(std::uint64_t position) const;
  /// TokenFlag bits the trace knows: a bit that is not among them says nothing about any token.
  std::uint32_t flags_known() const { return source_->header().flags_known; }
  /// First position from which every later position, up to the end, has its query row stored.
  std::uint64_t first_query() const { return first_query_; }

  /// Positions before `end` whose query rows are stored.
  std::uint64_t held_queries(std::uint64_t end) const;
  /// Whether the source's column statistics are those of this sequence's prompt.
  bool has_column_statistics() const;

  /// Positions [first, first + n) of one head, row-major [n, dim]. Queries must lie at or after
  /// first_query().
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first, std::uint64_t n,
            std::span<float> out) const;

 private:
  struct Span {
    std::uint64_t position, token, count;
  };
  void check_positions() const;

  const Source* source_;
  std::vector<Span> spans_;
  std::uint64_t length_ = 0, prompt_ = 0, answered_ = 0, first_query_ = 0;
};

}  // namespace kvsim::trace
