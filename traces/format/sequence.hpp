#pragma once
/// One path of a trace's segment tree in the form that replay reads: a prompt followed by decode steps, at
/// positions 0, 1, 2, ... Of several turns the last is replayed: tokens generated in earlier turns are part
/// of its prompt, as in a server that keeps the whole conversation cached between turns. A cut may end the
/// prompt elsewhere.
#include <cstdint>
#include <span>
#include <vector>

#include "traces/format/cut.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

class Sequence {
 public:
  /// The path from the root to the leaf of sequence `index` (of header().sequence_leaf). Its decode steps are
  /// the segments after its last prompt segment, none if it ends with a prompt; with another cut than
  /// Cut::At::prompt, they are all tokens from the cut on. Throws Error(input) for a path without a prompt or
  /// with RoPE positions other than 0, 1, 2, ...; Error(usage) for a cut that the sequence does not have.
  Sequence(const Source& source, std::size_t index = 0, const Cut& cut = {});

  const Source& source() const { return *source_; }
  const Model& model() const { return source_->header().model; }
  std::uint64_t length() const { return length_; }  ///< T: prompt and decode tokens
  const Cut& cut() const { return cut_; }
  std::uint64_t prompt_length() const { return prompt_; }  ///< P: tokens before the cut
  std::uint64_t decode_length() const { return length_ - prompt_; }
  std::uint64_t recorded_prompt_length() const { return recorded_prompt_; }  ///< P without a cut
  /// First position whose row is measured: P, or P - 1 at Cut::At::prompt, where the last prompt token's row
  /// is measured again, because it reads the first answer token.
  std::uint64_t first_measured() const { return cut_.at == Cut::At::prompt ? prompt_ - 1 : prompt_; }
  std::uint64_t measured_length() const { return length_ - first_measured(); }
  /// Number of prompt tokens before the first context token, without special tokens: the length of an
  /// instruction, which a cut at the question leaves in the prompt. 0 if the trace does not know its context.
  std::uint64_t instruction_before() const;
  /// Number of prompt tokens that were generated in earlier turns.
  std::uint64_t answered_length() const { return answered_; }
  /// The token (file order) at a position of the path.
  std::uint64_t token(std::uint64_t position) const;
  /// The TokenFlag bits of the token at a position; only those of flags_known().
  std::uint32_t flags(std::uint64_t position) const;
  /// -ln p of the token at a position, given those before it; NaN where the trace does not say.
  float surprise(std::uint64_t position) const;
  /// The TokenFlag bits that the trace knows; all other bits are meaningless for every token.
  std::uint32_t flags_known() const { return source_->header().flags_known; }
  /// First position from which every later position, up to the end, has its query row stored.
  std::uint64_t first_query() const { return first_query_; }

  /// Number of positions before `end` whose query rows are stored.
  std::uint64_t held_queries(std::uint64_t end) const;
  /// Whether the column statistics of the source cover exactly this sequence's prompt.
  bool has_column_statistics() const;

  /// Reads positions [first, first + n) of one head into `out`, row-major [n, dim]. Queries must lie at or
  /// after first_query().
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first, std::uint64_t n,
            std::span<float> out) const;
  /// Says that these positions will be read soon (Source::will_read()).
  void will_read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
                 std::uint64_t n) const;

 private:
  struct Span {
    std::uint64_t position, token, count;
    bool generated;  ///< by the model, or teacher-forced in its place
  };
  /// Rows of the file that follow each other, and the first position that they hold.
  struct Run {
    std::uint64_t position, row, count;
  };
  std::vector<Run> runs(Tensor tensor, std::uint64_t first, std::uint64_t n) const;
  void check_positions() const;
  /// Number of positions of the first request: those before the first generated token.
  std::uint64_t first_request() const;
  std::uint64_t question_begin() const;
  void apply_cut();

  const Source* source_;
  Cut cut_;
  std::vector<Span> spans_;
  std::uint64_t length_ = 0, prompt_ = 0, recorded_prompt_ = 0, answered_ = 0, first_query_ = 0;
};

}  // namespace kvsim::trace
