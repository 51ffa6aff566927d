// Rounds of drafting: every cell drafts through its cache, a full cache of its own verifies all of it in one
// step, and the cell's cache goes on from what was verified.
#include <algorithm>

#include "sim/base/rng.hpp"
#include "sim/loop/loop_run.hpp"
#include "sim/loop/speculation.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim {

double LoopRun::draw(Draft& draft) const {
  return uniform01(
      combine({request_.seed, key_of("draft"), std::uint64_t{streams_[draft.stream].turn()}, draft.draws++}));
}

void LoopRun::return_to_verified() {
  begin_step();
  for (const Draft& draft : drafts_)
    if (const Stream& target = streams_[draft.target]; !target.done)
      add_to_step(draft.stream, std::span(target.text).first(target.verified), first_fed_);
  // No policy needs to know how to undo: every cache begins anew, and takes the verified tokens as they come.
  workers_.run(layers_.size(), [&](std::size_t layer) {
    for (ReplayUnit& unit : layers_[layer].shared)
      for (std::size_t i = 0, n = unit.caches().size(); i < n; ++i) {
        const std::size_t stream = unit.caches()[i].cell;
        if (row_of_stream_[stream] == kInactive) continue;
        start_cache(layer, unit, stream);
        unit.caches()[i] = std::move(unit.caches().back());
        unit.caches().pop_back();
      }
  });
  const std::size_t rows = rows_.size(), dim = config_.head_dim, value_dim = config_.value_dim();
  std::vector<float> queries(rows * config_.n_heads * dim), keys(rows * config_.n_kv_heads * dim),
      values(rows * config_.n_kv_heads * value_dim), unread(rows * config_.n_heads * value_dim);
  refeeding_ = true;
  for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    const auto gather = [&](const TokenRows OwnRows::*tensor, std::size_t heads, std::size_t size,
                            std::vector<float>& to) {
      for (std::size_t row = 0; row < rows; ++row) {
        const OwnRows& own = streams_[streams_[active_[row]].reference].own[layer];
        for (std::size_t head = 0; head < heads; ++head)
          std::copy_n((own.*tensor).row(head, rows_[row].position - first_fed_), size,
                      to.data() + (head * rows + row) * size);
      }
    };
    gather(&OwnRows::queries, config_.n_heads, dim, queries);
    gather(&OwnRows::keys, config_.n_kv_heads, dim, keys);
    gather(&OwnRows::values, config_.n_kv_heads, value_dim, values);
    attend(layer, StepTensors(queries, keys, values, rows, dim, value_dim), unread);
  }
  refeeding_ = false;
}

void LoopRun::draft() {
  for (Draft& draft : drafts_)
    if (const Stream& target = streams_[draft.target]; !target.done)
      streams_[draft.stream].out().rounds.emplace_back();
  if (asked_.gamma > 0) return_to_verified();
  for (std::size_t place = 0; place < asked_.gamma; ++place) {
    progress_.check();
    begin_step();
    std::vector<Draft*> drafting;
    for (Draft& draft : drafts_) {
      const Stream& target = streams_[draft.target];
      if (target.done) continue;
      add_to_step(draft.stream, {place == 0 ? &target.text.back() : &draft.tokens.back(), 1},
                  first_fed_ + target.verified + place);
      drafting.push_back(&draft);
    }
    batch_.forward(rows_, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
      attend(layer, tensors, attended);
    });
    count_residents();
    std::vector<std::size_t> all(rows_.size());
    for (std::size_t row = 0; row < all.size(); ++row) all[row] = row;
    const std::vector<float> logits = batch_.logits(all);
    for (std::size_t i = 0; i < drafting.size(); ++i) {
      const std::span<const float> own =
          std::span(logits).subspan(i * config_.vocab_size, config_.vocab_size);
      require_finite(own, rows_[i].position);
      streams_[active_[i]].out().full_resident.push_back(whole_tokens(rows_[i].position + 1));
      drafting[i]->tokens.push_back(asked_.temperature == 0
                                        ? model::choose_token(own, {}, 0)
                                        : drawn(probabilities(own, asked_.temperature), draw(*drafting[i])));
      drafting[i]->logits.emplace_back(own.begin(), own.end());
    }
  }
}

bool LoopRun::verify() {
  progress_.check();
  begin_step();
  std::vector<Draft*> verifying;
  std::vector<std::size_t> asked;  // rows whose logits are
  for (Draft& draft : drafts_) {
    Stream& target = streams_[draft.target];
    if (target.done) continue;
    std::vector<std::int32_t> fed(target.text.begin() + static_cast<std::ptrdiff_t>(target.verified),
                                  target.text.end());
    fed.insert(fed.end(), draft.tokens.begin(), draft.tokens.end());
    add_to_step(draft.target, fed, first_fed_ + target.verified);
    for (std::size_t row = rows_.size() - draft.tokens.size() - 1; row < rows_.size(); ++row)
      asked.push_back(row);
    verifying.push_back(&draft);
  }
  batch_.forward(rows_, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
    attend(layer, tensors, attended);
  });
  const std::vector<float> logits = batch_.logits(asked);
  std::span<const float> rest = logits;
  bool going = false;
  std::size_t slowest = length_;
  for (Draft* const draft : verifying) {
    const std::size_t n = (draft->tokens.size() + 1) * config_.vocab_size;
    judge(*draft, rest.first(n));
    rest = rest.subspan(n);
    const Stream& target = streams_[draft->target];
    going = going || !target.done;
    slowest = std::min(slowest, target.verified);
  }
  if (slowest > draft_steps_) progress_.advance((slowest - draft_steps_) * step_work());
  draft_steps_ = std::max(draft_steps_, slowest);
  return going;
}

void LoopRun::judge(Draft& draft, std::span<const float> logits) {
  Stream &target = streams_[draft.target], &own = streams_[draft.stream];
  const std::size_t vocabulary = config_.vocab_size;
  const auto of = [&](std::size_t i) { return logits.subspan(i * vocabulary, vocabulary); };
  require_finite(logits, first_fed_ + target.text.size() - 1);
  std::vector<std::vector<double>> p, q;
  for (std::size_t i = 0; i <= draft.tokens.size(); ++i)
    p.push_back(probabilities(of(i), asked_.temperature));
  for (const std::vector<float>& from : draft.logits) q.push_back(probabilities(from, asked_.temperature));
  const Verdict verdict = verify_drafted(draft.tokens, p, q, [&] { return draw(draft); });

  const auto ends = [&](std::int32_t token) { return std::ranges::count(asked_.eos, token) > 0; };
  std::vector<std::int32_t> joined(draft.tokens.begin(),
                                   draft.tokens.begin() + static_cast<std::ptrdiff_t>(verdict.accepted));
  joined.push_back(verdict.next);
  if (const auto end = std::ranges::find_if(joined, ends); end != joined.end())
    joined.erase(end + 1, joined.end());
  if (!own.out().rounds.empty()) {  // the first token of the answer is nobody's draft
    DraftRound& round = own.out().rounds.back();
    round.tokens = joined.size();
    const double softness = asked_.temperature == 0 ? 1 : asked_.temperature;
    for (std::size_t i = 0; i < std::min(joined.size(), draft.tokens.size()); ++i)
      round.tested.push_back(
          {draft.tokens[i], overlap(probabilities(of(i), softness), probabilities(draft.logits[i], softness)),
           i < verdict.accepted});
  }
  target.verified = target.text.size() + joined.size() - 1;
  const std::size_t most = most_answer_tokens(asked_, target.mode, target.turn());
  for (const std::int32_t token : joined) {
    target.done = target.take(token, ends(token) || target.out().tokens.size() + 1 == most);
    own.take(token, false);
    if (target.done) break;
  }
  own.done = target.done;
  draft.tokens.clear();
  draft.logits.clear();
}

}  // namespace kvsim::sim
