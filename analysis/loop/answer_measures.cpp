#include "analysis/loop/answer_measures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "analysis/loop/words.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

using sim::StreamOutcome;
using sim::TokenMeasures;

namespace {

/// Over the tokens that are fed in teacher mode.
template <class Get>
std::vector<double> each(const Answer& answer, Get get) {
  std::vector<double> out;
  if (answer.teacher() && answer.stream() != nullptr)
    for (const TokenMeasures& at : answer.stream()->measures) out.push_back(get(at));
  return out;
}

Number perplexity(const std::vector<double>& log_p) {
  const Number average = mean(log_p);
  if (!average || !std::isfinite(std::exp(-*average))) return {};
  return std::exp(-*average);
}

bool judged(const Answer& answer) {
  return !answer.teacher() && answer.item.text && answer.item.right && !answer.item.answers.empty();
}

}  // namespace

std::vector<double> kl(const Answer& answer) {
  return each(answer, [](const TokenMeasures& at) { return at.kl; });
}

Number mean(const std::vector<double>& values) {
  if (values.empty()) return {};
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Number quantile(std::vector<double> values, double q) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

Number same_top(const Answer& answer) {
  return mean(each(answer, [](const TokenMeasures& at) { return at.same_top ? 1.0 : 0.0; }));
}

Number log_likelihood(const Answer& answer) {
  const std::vector<double> logs = each(answer, [](const TokenMeasures& at) { return at.log_p; });
  if (logs.empty()) return {};
  return std::accumulate(logs.begin(), logs.end(), 0.0);
}

Number delta_log_p(const Answer& answer) {
  return mean(each(answer, [](const TokenMeasures& at) { return at.log_p - at.log_p_full; }));
}

Number rms_delta_p(const Answer& answer) {
  const Number square = mean(each(answer, [](const TokenMeasures& at) {
    const double d = std::exp(at.log_p) - std::exp(at.log_p_full);
    return d * d;
  }));
  if (!square) return {};
  return std::sqrt(*square);
}

Number rank(const Answer& answer) {
  return mean(each(answer, [](const TokenMeasures& at) { return static_cast<double>(at.rank); }));
}

Perplexities perplexities(const Answer& answer) {
  return {perplexity(each(answer, [](const TokenMeasures& at) { return at.log_p; })),
          perplexity(each(answer, [](const TokenMeasures& at) { return at.log_p_full; }))};
}

std::optional<bool> is_right(const Answer& answer, const StreamOutcome* stream) {
  if (!judged(answer) || stream == nullptr) return {};
  return answer.item.right(answer.item.text(stream->tokens));
}

std::optional<bool> contains_answer(const Answer& answer) {
  if (!judged(answer) || answer.stream() == nullptr) return {};
  const std::string text = answer.item.text(answer.stream()->tokens);
  return std::ranges::any_of(answer.item.answers, [&](const std::string& expected) {
    const std::size_t begin = expected.find_first_not_of(' ');
    return begin != std::string::npos && text.find(expected.substr(begin)) != std::string::npos;
  });
}

std::optional<std::uint64_t> agreement(const Answer& answer) {
  if (answer.teacher() || answer.stream() == nullptr) return {};
  const std::vector<std::int32_t>&mine = answer.stream()->tokens, &full = answer.reference().tokens;
  const std::size_t n = std::min(mine.size(), full.size());
  return static_cast<std::uint64_t>(
      std::mismatch(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(n), full.begin()).first -
      mine.begin());
}

Number rouge_l(const Answer& answer) {
  if (answer.teacher() || answer.stream() == nullptr || !answer.item.text) return {};
  return rouge_l(answer.item.text(answer.stream()->tokens), answer.item.text(answer.reference().tokens));
}

Number rouge_l(const std::string& text, const std::string& reference) {
  const std::vector<std::string> mine = words_of(text), full = words_of(reference);
  if (mine.empty() && full.empty()) return {};
  // The longest common subsequence of the words so far and the first j of the reference.
  std::vector<std::uint64_t> longest(full.size() + 1, 0);
  for (const std::string& word : mine) {
    std::uint64_t before = 0;  // of one word fewer on both sides
    for (std::size_t j = 1; j <= full.size(); ++j) {
      const std::uint64_t here = longest[j];
      longest[j] = word == full[j - 1] ? before + 1 : std::max(longest[j], longest[j - 1]);
      before = here;
    }
  }
  // 2 P R / (P + R), with P and R the subsequence's shares of either text.
  return 2 * static_cast<double>(longest.back()) / static_cast<double>(mine.size() + full.size());
}

Number divergence_margin(const Answer& answer) {
  const auto n = agreement(answer);
  if (!n || *n >= answer.reference().margins.size() || *n >= answer.stream()->tokens.size()) return {};
  return answer.reference().margins[*n];
}

Number repetition(const Answer& answer) {
  constexpr std::ptrdiff_t kLength = 4;
  if (answer.teacher() || answer.stream() == nullptr) return {};
  const std::vector<std::int32_t>& tokens = answer.stream()->tokens;
  std::set<std::vector<std::int32_t>> distinct;
  double all = 0;
  for (auto begin = tokens.begin(); tokens.end() - begin >= kLength; ++begin, ++all)
    distinct.insert({begin, begin + kLength});
  if (all == 0) return {};
  return 1 - static_cast<double>(distinct.size()) / all;
}

std::optional<HeldEntries> held_entries(const Answer& answer) {
  const std::uint64_t lanes = answer.item.lanes;
  if (answer.stream() == nullptr || lanes == 0) return {};
  const std::vector<std::uint64_t>& resident = answer.stream()->resident;
  const auto kept =
      static_cast<std::uint64_t>(std::llround(answer.cell.kept_tokens * static_cast<double>(lanes)));
  HeldEntries out{.end = resident.back(), .peak = kept};
  for (const std::uint64_t entries : resident) out.peak = std::max(out.peak, entries);
  if (const std::vector<std::uint64_t>& bits = answer.stream()->stored_bits; !bits.empty()) {
    out.end_bytes = (bits.back() + 7) / 8;
    out.peak_bytes = (std::max(answer.cell.kept_bits, *std::ranges::max_element(bits)) + 7) / 8;
  } else if (answer.item.token_bytes > 0) {
    out.end_bytes = out.end * answer.item.token_bytes;
    out.peak_bytes = out.peak * answer.item.token_bytes;
  }
  // The reference holds everything: after its first fed token the prompt, and that token unless it is the
  // prompt's last one, asked again. Each later token joins every lane. What a layer's window leaves behind is
  // not evicted.
  const sim::StreamOutcome& full = answer.reference();
  const std::uint64_t seen = full.seen > 0 ? full.seen : full.resident.front();
  const std::uint64_t joined = seen - lanes * answer.outcome.prompt + lanes * (resident.size() - 1);
  out.evicted = kept + joined - answer.stream()->left_behind - out.end;
  return out;
}

std::optional<ReadEntries> read_entries(const Answer& answer) {
  const std::uint64_t lanes = answer.item.lanes;
  if (answer.stream() == nullptr || lanes == 0) return {};
  const sim::StreamOutcome& stream = *answer.stream();
  const auto steps = static_cast<double>(stream.resident.size());
  const bool sized = !stream.stored_bits.empty() || answer.item.token_bytes > 0;
  double tokens = 0, bytes = 0;
  for (std::size_t fed = 0; fed < stream.resident.size(); ++fed) {
    const auto held = static_cast<double>(stream.resident[fed]);
    const double token_bytes = stream.stored_bits.empty()
                                   ? static_cast<double>(answer.item.token_bytes)
                                   : static_cast<double>(stream.stored_bits[fed]) / 8 / held;
    if (stream.reads.empty()) {
      tokens += held;
      bytes += held * token_bytes;
      continue;
    }
    const sim::StepReads& reads = stream.reads[fed];
    tokens += reads.read_tokens;
    bytes += static_cast<double>(reads.loaded_tokens) * token_bytes +
             static_cast<double>(reads.index_bits_read) / 8;
  }
  ReadEntries out{.read_tokens = tokens / steps / static_cast<double>(lanes)};
  if (sized) out.read_bytes = bytes / steps;
  if (!stream.reads.empty()) out.index_bytes = static_cast<double>(stream.reads.back().index_bits) / 8;
  return out;
}

Number entry_steps(const Answer& answer) {
  if (answer.stream() == nullptr) return {};
  const auto sum = [](const std::vector<std::uint64_t>& n) {
    return static_cast<double>(std::accumulate(n.begin(), n.end(), std::uint64_t{0}));
  };
  const std::vector<std::uint64_t>& mine = answer.stream()->resident;
  std::vector<std::uint64_t> full = answer.reference().resident;
  full.resize(std::min(full.size(), mine.size()));
  return sum({mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(full.size())}) / sum(full);
}

namespace {

constexpr const char* kLosses[] = {"evidence_loss", "peak_loss", "attention_loss", "output_error", "r"};

}  // namespace

const std::vector<ColumnInfo>& loss_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out;
    for (const char* key : kLosses)
      for (const Metric& metric : all_metrics())
        if (std::string_view(metric.key) == key) out.push_back(info_of(metric));
    return out;
  }();
  return all;
}

std::vector<std::vector<Value>> replayed_losses(const trace::Sequence& sequence,
                                                const sim::Request& request) {
  Progress unseen;
  const sim::Outcome outcome = sim::replay(sequence, request, unseen);
  std::vector<std::vector<Value>> out;
  for (const Row& row : make_rows("", request, outcome, Scope::all)) {
    std::vector<Value>& losses = out.emplace_back();
    for (const char* key : kLosses) losses.push_back(value_of(row[key]));
  }
  return out;
}

}  // namespace kvsim::analysis
