#pragma once
/// One run of the model after the cut: a cell in a mode, or a full cache that others are compared with. It
/// knows which token comes next, and keeps the keys and values of the tokens that it alone has processed.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/loop/closed_loop.hpp"
#include "traces/model/cpu/step_batch.hpp"

namespace kvsim::sim {

/// A turn as a stream sees it: fed tokens, then an answer.
struct Feed {
  std::size_t turn = 0;             ///< of the request
  std::vector<std::int32_t> fed{};  ///< before the answer; not empty
};

/// Turns that one stream goes through.
using Script = std::vector<Feed>;

/// The scripts of a mode, in the order of their turns. `fed` is what the first turn is fed.
std::vector<Script> scripts_of(const LoopRequest& request, LoopMode mode, std::span<const std::int32_t> fed);

/// Whether a mode is fed the expected answer of a turn.
bool feeds_answer(const LoopRequest& request, LoopMode mode, std::size_t turn);

/// Most tokens of an answer.
std::size_t most_answer_tokens(const LoopRequest& request, LoopMode mode, std::size_t turn);

/// Tokens that a stream of a script is fed at most, its answers included.
std::size_t most_tokens(const LoopRequest& request, LoopMode mode, const Script& script);

/// [heads, rows, dim] of the tokens from a first position on, rows filled one after the other.
class TokenRows {
 public:
  TokenRows() = default;
  TokenRows(std::size_t heads, std::size_t rows, std::size_t dim)
      : rows_(rows), dim_(dim), data_(heads * rows * dim) {}
  const float* row(std::size_t head, std::size_t index) const {
    return data_.data() + (head * rows_ + index) * dim_;
  }
  void set(std::size_t index, MatrixView heads);
  /// [n, dim] of one row in heads first .. first + n - 1.
  MatrixView of_heads(std::size_t first, std::size_t n, std::size_t index) const {
    return {row(first, index), n, dim_, rows_ * dim_};
  }
  /// [rows, dim] of one head.
  MatrixView of(std::size_t head) const { return {row(head, 0), rows_, dim_, dim_}; }

 private:
  std::size_t rows_ = 0, dim_ = 0;
  std::vector<float> data_;
};

struct OwnRows {
  TokenRows keys, values;
  TokenRows queries;  ///< of the prompt, where it comes in chunks; of all tokens of a cache that verifies
};

struct Stream {
  LoopMode mode = LoopMode::teacher;
  Prefill prefill = Prefill::dense;
  bool is_reference = false;
  std::size_t cell = 0;       ///< if it is not a reference
  std::size_t reference = 0;  ///< the stream that it is compared with
  /// The first stream of the same cell that processes the same prompt: it does so for all of them.
  std::size_t leader = 0;
  Script script{};
  std::size_t feed = 0;              ///< the present turn of the script
  std::vector<std::int32_t> text{};  ///< tokens from the first fed one on, as far as they are known
  /// -ln p of tokens of the text, where a policy needs it (policy::Step::surprise).
  std::vector<float> surprises{};
  std::size_t verified = 0;  ///< draft mode: tokens of the text that the full cache has been fed
  bool done = false;
  std::size_t first_own = 0;           ///< position of the first of its own rows
  std::vector<OwnRows> own{};          ///< per layer
  std::vector<DriftMean> drift{};      ///< per layer, of the present turn
  std::vector<StreamOutcome> turns{};  ///< per turn of the script
  /// Of a reference in teacher mode: what the present token of the answer, and earlier ones that are kept for
  /// another run, were predicted from, by the tokens of the text before it.
  std::map<std::size_t, Predicted> predicted{};

  StreamOutcome& out() { return turns[feed]; }
  std::size_t turn() const { return script[feed].turn; }
  /// Whether it is the full cache of a cell that drafts.
  bool verifies() const { return is_reference && mode == LoopMode::draft; }
  /// Whether the token after `fed` tokens is for the stream to predict.
  bool predicts_after(std::size_t fed) const { return !done && fed == text.size(); }
  /// Takes the token of the answer that follows. `last`: the answer ends with it. Returns whether the turn
  /// has ended.
  bool take(std::int32_t token, bool last);
  /// Goes on to the next turn of the script, if there is one.
  void end_turn();
};

}  // namespace kvsim::sim
