// Rounds of drafting: every cell drafts through its cache, a full cache of its own verifies all of it in one
// step, and the cell's cache goes on from what was verified.
#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"
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
    if (const Stream& target = target_of(draft); !target.done && draft.processed > 0)
      add_to_step(draft.stream, std::span(target.text).first(draft.processed), first_fed_);
  if (rows_.empty()) return;
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
        const Stream& stream = streams_[active_[row]];
        const OwnRows& own = (drafts_apart() ? stream : streams_[stream.reference]).own[layer];
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

std::vector<std::vector<float>> LoopRun::feed(std::span<Draft* const> drafting) {
  progress_.check();
  begin_step();
  std::vector<std::size_t> asked;  // the last row of each
  for (Draft* const draft : drafting) {
    std::vector<std::int32_t> fed = target_of(*draft).text;
    fed.insert(fed.end(), draft->tokens.begin(), draft->tokens.end());
    fed.erase(fed.begin(), fed.begin() + static_cast<std::ptrdiff_t>(draft->processed));
    for (const std::int32_t token : fed)
      if (static_cast<std::uint32_t>(token) >= config_.vocab_size)
        input_error(
            "the text has token " + std::to_string(token) + ", which the model that drafts does not know",
            "draft");
    add_to_step(draft->stream, fed, first_fed_ + draft->processed);
    asked.push_back(rows_.size() - 1);
    draft->processed += fed.size();
  }
  batch_.forward(rows_, [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
    attend(layer, tensors, attended);
  });
  count_residents();
  const std::vector<float> logits = batch_.logits(asked);
  const std::size_t mine = config_.vocab_size, vocabulary = verifier_->config_.vocab_size;
  std::vector<std::vector<float>> out;
  for (std::size_t i = 0; i < drafting.size(); ++i) {
    const auto all = std::span(logits).subspan(i * mine, mine);
    require_finite(all, rows_[asked[i]].position);
    streams_[drafting[i]->stream].out().full_resident.push_back(
        verifier_->whole_tokens(verifier_->first_fed_ + drafting[i]->processed));
    out.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(mine, vocabulary)));
    out.back().resize(vocabulary, -std::numeric_limits<float>::infinity());
  }
  return out;
}

std::vector<std::vector<float>> LoopRun::logits_of_helper(std::span<Draft* const> drafting) {
  std::vector<Draft*> helping;
  for (const Draft* const draft : drafting) {
    if (helper_ == nullptr || draft->bonus) continue;
    helping.push_back(&helper_->drafts_[static_cast<std::size_t>(draft - drafts_.data())]);
    helping.back()->tokens = draft->tokens;
  }
  return helping.empty() ? std::vector<std::vector<float>>{} : helper_->feed(helping);
}

void LoopRun::draft() {
  for (Draft& draft : drafts_)
    if (!target_of(draft).done) streams_[draft.stream].out().rounds.emplace_back();
  if (asked_.gamma == 0) return;
  return_to_verified();
  if (helper_ != nullptr) helper_->return_to_verified();
  while (true) {
    std::vector<Draft*> drafting;
    for (Draft& draft : drafts_)
      if (!target_of(draft).done && (draft.tokens.size() < asked_.gamma || draft.bonus))
        drafting.push_back(&draft);
    if (drafting.empty()) return;
    const std::vector<std::vector<float>> helped = logits_of_helper(drafting);
    std::vector<std::vector<float>> logits = feed(drafting);
    auto next_helped = helped.begin();
    for (std::size_t i = 0; i < drafting.size(); ++i) {
      Draft& draft = *drafting[i];
      if (helper_ == nullptr || draft.bonus) {
        draft.tokens.push_back(chosen(draft, logits[i]));
        draft.bonus = false;
      } else {
        take_helped(draft, *next_helped++, logits[i]);
      }
      draft.logits.push_back(std::move(logits[i]));
    }
  }
}

std::int32_t LoopRun::chosen(Draft& draft, std::span<const float> logits) const {
  return asked_.temperature == 0 ? model::choose_token(logits, {}, 0)
                                 : drawn(probabilities(logits, asked_.temperature), draw(draft));
}

double LoopRun::soft_overlap(std::span<const float> p, std::span<const float> q) const {
  const double softness = asked_.temperature == 0 ? 1 : asked_.temperature;
  return overlap(probabilities(p, softness), probabilities(q, softness));
}

void LoopRun::take_helped(Draft& draft, std::span<const float> helped, std::span<const float> own) {
  const std::int32_t token = chosen(draft, helped);
  const std::optional<std::int32_t> other =
      in_place_of(token, probabilities(own, asked_.temperature), probabilities(helped, asked_.temperature),
                  [&] { return draw(draft); });
  streams_[draft.stream].out().rounds.back().helped.push_back({token, soft_overlap(own, helped), !other});
  draft.tokens.push_back(other.value_or(token));
  draft.bonus = !other;
}

bool LoopRun::verify() {
  LoopRun& full = *verifier_;
  progress_.check();
  full.begin_step();
  std::vector<Draft*> verifying;
  std::vector<std::size_t> asked;  // rows whose logits are
  for (Draft& draft : drafts_) {
    const Stream& target = target_of(draft);
    if (target.done) continue;
    std::vector<std::int32_t> fed(target.text.begin() + static_cast<std::ptrdiff_t>(target.verified),
                                  target.text.end());
    fed.insert(fed.end(), draft.tokens.begin(), draft.tokens.end());
    full.add_to_step(draft.target, fed, full.first_fed_ + target.verified);
    for (std::size_t row = full.rows_.size() - draft.tokens.size() - 1; row < full.rows_.size(); ++row)
      asked.push_back(row);
    verifying.push_back(&draft);
  }
  full.batch_.forward(full.rows_, [&](std::uint32_t layer, const StepTensors& tensors,
                                      std::span<float> attended) { full.attend(layer, tensors, attended); });
  const std::vector<float> logits = full.batch_.logits(asked);
  std::span<const float> rest = logits;
  bool going = false;
  std::size_t slowest = length_;
  for (Draft* const draft : verifying) {
    const std::size_t n = (draft->tokens.size() + 1) * full.config_.vocab_size;
    judge(*draft, rest.first(n));
    rest = rest.subspan(n);
    const Stream& target = target_of(*draft);
    going = going || !target.done;
    slowest = std::min(slowest, target.verified);
  }
  if (slowest > draft_steps_) progress_.advance((slowest - draft_steps_) * step_work());
  draft_steps_ = std::max(draft_steps_, slowest);
  return going;
}

void LoopRun::judge(Draft& draft, std::span<const float> logits) {
  Stream &target = target_of(draft), &own = streams_[draft.stream];
  const std::size_t vocabulary = verifier_->config_.vocab_size;
  const auto of = [&](std::size_t i) { return logits.subspan(i * vocabulary, vocabulary); };
  require_finite(logits, first_fed_ + target.text.size() - 1);
  std::vector<std::vector<double>> p, q;
  for (std::size_t i = 0; i <= draft.tokens.size(); ++i)
    p.push_back(probabilities(of(i), asked_.temperature));
  for (const std::vector<float>& from : draft.logits) q.push_back(probabilities(from, asked_.temperature));
  std::vector<std::vector<double>> led;
  for (std::size_t i = 0; asked_.lead > 0 && i < q.size(); ++i)
    led.push_back(led_by(q[i], of(i), asked_.temperature, asked_.lead));
  const Verdict verdict = verify_drafted(
      draft.tokens, p, q, [&] { return draw(draft); }, led);

  const auto ends = [&](std::int32_t token) { return std::ranges::count(asked_.eos, token) > 0; };
  std::vector<std::int32_t> joined(draft.tokens.begin(),
                                   draft.tokens.begin() + static_cast<std::ptrdiff_t>(verdict.accepted));
  joined.push_back(verdict.next);
  if (const auto end = std::ranges::find_if(joined, ends); end != joined.end())
    joined.erase(end + 1, joined.end());
  if (!own.out().rounds.empty()) {  // the first token of the answer is nobody's draft
    DraftRound& round = own.out().rounds.back();
    round.tokens = joined.size();
    for (std::size_t i = 0; i < std::min(joined.size(), draft.tokens.size()); ++i)
      round.tested.push_back({draft.tokens[i],
                              led.empty() ? soft_overlap(of(i), draft.logits[i]) : overlap(led[i], q[i]),
                              i < verdict.accepted});
  }
  target.verified = target.text.size() + joined.size() - 1;
  // What was rejected, and what comes in its place, is not in the rows that another model has made.
  const std::size_t right = target.text.size() + verdict.accepted;
  draft.processed = drafts_apart() ? std::min(draft.processed, right) : target.verified;
  if (helper_ != nullptr) {
    Draft& helping = helper_->drafts_[static_cast<std::size_t>(&draft - drafts_.data())];
    helping.processed = std::min(helping.processed, right);
    helping.tokens.clear();
  }
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
