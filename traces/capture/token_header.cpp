#include "traces/capture/token_header.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"
#include "traces/model/unicode_text.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::capture {
namespace {

/// Flag of a token that holds text.
std::uint32_t text_flag(const std::string& text) {
  switch (model::kind_of_text(text)) {
    case model::TextKind::white_space:
      return trace::kFlagWhiteSpace;
    case model::TextKind::punctuation:
      return trace::kFlagPunctuation;
    case model::TextKind::digits:
      return trace::kFlagDigit;
    case model::TextKind::other:
      break;
  }
  return 0;
}

/// Sets the token flags. Without a tokenizer only kFlagGenerated is known; the parts of a prompt are known
/// only for workloads.
void fill_flags(trace::Header& header, const Prompt& prompt, const model::ModelConfig& config) {
  const std::uint64_t total = header.n_tokens();
  header.token_flags = prompt.part_flags;
  header.token_flags.resize(total, 0);
  for (std::uint64_t t = prompt.ids.size(); t < total; ++t) header.token_flags[t] = trace::kFlagGenerated;
  header.flags_known = trace::kFlagGenerated;
  constexpr std::uint32_t kParts = trace::kFlagQuestion | trace::kFlagContext;
  for (const std::uint32_t flags : prompt.part_flags) {
    if (flags & kParts) header.flags_known |= kParts | trace::kFlagEvidence;
    header.flags_known |= flags & workload::kFlagMarkup;
  }
  const std::optional<model::Tokenizer>& tokenizer = prompt.tokenizer;
  if (!tokenizer) return;
  header.flags_known |=
      trace::kFlagSpecial | trace::kFlagWhiteSpace | trace::kFlagPunctuation | trace::kFlagDigit;
  for (std::uint64_t t = 0; t < total; ++t) {
    header.token_flags[t] |= token_flag(header.token_id[t], *tokenizer, config);
  }
}

}  // namespace

std::uint32_t token_flag(std::int32_t id, const model::Tokenizer& tokenizer,
                         const model::ModelConfig& config) {
  const bool ends = std::find(config.eos.begin(), config.eos.end(), id) != config.eos.end();
  return ends || tokenizer.is_special(id) ? trace::kFlagSpecial : text_flag(tokenizer.bytes(id));
}

void describe_tokens(trace::Header& header, const std::vector<std::int32_t>& tokens, const Prompt& prompt,
                     const model::ModelConfig& config) {
  const std::uint64_t total = tokens.size();
  header.token_id = tokens;
  header.token_position.resize(total);
  std::iota(header.token_position.begin(), header.token_position.end(), 0);
  header.token_segment.assign(total, 0);
  std::fill(header.token_segment.begin() + static_cast<std::ptrdiff_t>(prompt.ids.size()),
            header.token_segment.end(), 1);
  fill_flags(header, prompt, config);
  const std::optional<model::Tokenizer>& tokenizer = prompt.tokenizer;
  if (!tokenizer) return;
  header.tokenizer_name = tokenizer->name();
  header.tokenizer_sha256 = tokenizer->sha256();
  header.text_offset.push_back(0);
  for (const std::string& bytes : tokenizer->spell(tokens)) {
    header.text_bytes += bytes;
    header.text_offset.push_back(header.text_bytes.size());
  }
}

void describe_segments(trace::Header& header, std::uint64_t prompt, std::uint64_t total, bool forced) {
  header.segments = {{.parent = -1, .begin = 0, .count = static_cast<std::uint32_t>(prompt), .path_len = 0}};
  if (total > prompt) {
    header.segments.push_back({.parent = 0,
                               .begin = prompt,
                               .count = static_cast<std::uint32_t>(total - prompt),
                               .path_len = static_cast<std::uint32_t>(prompt),
                               .phase = forced ? trace::Phase::teacher_forced : trace::Phase::decode});
  }
  header.sequence_leaf = {static_cast<std::uint32_t>(header.segments.size() - 1)};
}

void describe_piece(trace::Header& header, const PieceRun& piece, const model::Generation& run,
                    const Prompt& prompt, const model::ModelConfig& config) {
  const std::uint64_t begin = header.n_tokens(), n = piece.ids.size();
  const auto number = static_cast<std::uint32_t>(header.segments.size());
  constexpr std::uint8_t kDocument = 5;
  header.segments.push_back({.parent = -1,
                             .begin = begin,
                             .count = static_cast<std::uint32_t>(n),
                             .role = piece.document ? kDocument : std::uint8_t{0}});
  header.sequence_leaf.push_back(number);
  for (std::uint64_t t = 0; t < n; ++t) {
    header.token_id.push_back(piece.ids[t]);
    header.token_position.push_back(static_cast<std::int32_t>(t));
    header.token_segment.push_back(number);
    header.token_flags.push_back(prompt.tokenizer ? token_flag(piece.ids[t], *prompt.tokenizer, config) : 0);
  }
  if (!header.token_logprob.empty())
    header.token_logprob.insert(header.token_logprob.end(), run.logprob.begin(), run.logprob.end());
  if (!header.text_offset.empty())
    for (const std::string& bytes : prompt.tokenizer->spell(piece.ids)) {
      header.text_bytes += bytes;
      header.text_offset.push_back(header.text_bytes.size());
    }
  if (!header.query_token.empty())
    for (std::uint64_t t = begin; t < begin + n; ++t) header.query_token.push_back(t);
  const std::int64_t start =
      header.passes.empty() ? 0 : header.passes.back().start_ns + header.passes.back().dur_ns;
  for (trace::Pass pass : run.passes) {
    pass.segment = number;
    pass.begin += begin;
    pass.start_ns += start;
    header.passes.push_back(pass);
  }
  header.layer_ns.insert(header.layer_ns.end(), run.layer_ns.begin(), run.layer_ns.end());
  header.attn_ns.insert(header.attn_ns.end(), run.attn_ns.begin(), run.attn_ns.end());
}

Elem parse_cache_elem(const std::string& text, Elem checkpoint, Elem compute) {
  if (text == "auto") return checkpoint == Elem::bf16 || compute == Elem::bf16 ? Elem::bf16 : Elem::f32;
  if (compute == Elem::bf16 && (text == "f32" || text == "f16")) {
    usage_error("what is computed in bf16 is stored in bf16", "--elem " + text,
                "Leave --elem out, or add --compute f32.");
  }
  for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16}) {
    if (text == elem_name(elem)) return elem;
  }
  usage_error("unknown element type \"" + text + "\"", "--elem",
              suggestion(text, {"auto", "f32", "f16", "bf16"}));
}

}  // namespace kvsim::capture
