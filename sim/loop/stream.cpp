#include "sim/loop/stream.hpp"

#include <algorithm>

namespace kvsim::sim {
namespace {

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

}  // namespace

std::vector<Script> scripts_of(const LoopRequest& request, LoopMode mode, std::span<const std::int32_t> fed) {
  const std::vector<std::int32_t> first(fed.begin(), fed.end());
  const auto question = [&](std::size_t turn) { return turn == 0 ? first : request.turns[turn].question; };
  const std::size_t turns = request.turns.size();
  std::vector<Script> scripts;
  if (request.protocol == TurnProtocol::own && mode == LoopMode::greedy) {
    Script& script = scripts.emplace_back();
    for (std::size_t turn = 0; turn < turns; ++turn) script.push_back({turn, question(turn)});
    return scripts;
  }
  std::vector<std::int32_t> before;  // earlier questions with their expected answers
  for (std::size_t turn = 0; turn < turns; ++turn) {
    Feed feed{turn, before};
    append(feed.fed, question(turn));
    if (request.protocol != TurnProtocol::requests) {
      before = feed.fed;
      append(before, request.turns[turn].answer);
    }
    scripts.push_back({std::move(feed)});
  }
  return scripts;
}

bool feeds_answer(const LoopRequest& request, LoopMode mode, std::size_t turn) {
  return mode == LoopMode::teacher && request.force_answer && !request.turns[turn].answer.empty();
}

std::size_t most_answer_tokens(const LoopRequest& request, LoopMode mode, std::size_t turn) {
  return feeds_answer(request, mode, turn) ? request.turns[turn].answer.size()
                                           : static_cast<std::size_t>(request.max_new_tokens);
}

std::size_t most_tokens(const LoopRequest& request, LoopMode mode, const Script& script) {
  std::size_t tokens = 0;
  for (const Feed& feed : script) tokens += feed.fed.size() + most_answer_tokens(request, mode, feed.turn);
  return tokens;
}

void TokenRows::set(std::size_t index, MatrixView heads) {
  for (std::size_t head = 0; head < heads.rows; ++head) {
    const std::span<const float> from = heads.row(head);
    std::copy(from.begin(), from.end(), data_.data() + (head * rows_ + index) * dim_);
  }
}

bool Stream::take(std::int32_t token, bool last) {
  out().tokens.push_back(token);
  text.push_back(token);
  return last;
}

void Stream::end_turn() {
  if (mode == LoopMode::teacher && !is_reference)
    for (const DriftMean& layer : drift) out().drift.push_back(layer.mean());
  if (feed + 1 == script.size()) {
    done = true;
    return;
  }
  ++feed;
  append(text, script[feed].fed);
}

}  // namespace kvsim::sim
