#include "tools/printing/trace_summary.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <ostream>

#include "analysis/report/wording.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/validate.hpp"
#include "traces/workloads/prompt_item.hpp"

namespace kvsim::tools {
namespace {

using trace::Header;
using trace::Tensor;

/// `text` without control characters, because text from a file must not control the terminal.
std::string printable(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

std::string human_seconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(ns) * 1e-9);
  return text;
}

std::uint64_t tensor_bytes(const Header& header, Tensor tensor) {
  if (tensor == Tensor::query && !trace::holds_queries(header)) return 0;
  if (tensor == Tensor::value && header.model.values_in_keys) return 0;
  return std::uint64_t{header.model.n_layers} * trace::schema::tensor_heads(header.model, tensor) *
         trace::schema::tensor_rows(header, tensor) * trace::schema::tensor_dim(header.model, tensor) *
         elem_bytes(header.elem);
}

std::uint64_t output_weight_bytes(const Header& header) {
  if (!header.output_elem) return 0;
  return std::uint64_t{header.model.n_layers} * header.model.n_q_heads * header.model.v_head_dim *
         header.model.hidden_size * elem_bytes(*header.output_elem);
}

/// Number of tokens and forward time of one phase.
struct PhaseSum {
  std::uint64_t tokens = 0, passes = 0;
  std::int64_t ns = 0;
};

PhaseSum sum_of(const Header& header, bool prompt) {
  PhaseSum sum;
  for (const trace::Segment& segment : header.segments)
    if ((segment.phase == trace::Phase::prompt) == prompt) sum.tokens += segment.count;
  for (const trace::Pass& pass : header.passes) {
    if ((pass.phase == trace::Phase::prompt) != prompt) continue;
    ++sum.passes;
    sum.ns += pass.dur_ns;
  }
  return sum;
}

/// Those of `parts` that say something.
std::string join(std::vector<std::string> parts, const char* separator) {
  std::erase(parts, "");
  return joined(parts, separator);
}

/// The prompt tokens whose queries a slim trace stores.
struct PromptQueries {
  explicit PromptQueries(const Header& header) {
    for (const trace::Segment& segment : header.segments)
      if (segment.phase == trace::Phase::prompt) {
        tokens += segment.count;
        end = segment.begin + segment.count;
      }
    const std::vector<std::uint64_t>& stored = header.query_token;
    for (const std::uint64_t token : stored)
      held += header.segments[header.token_segment[token]].phase == trace::Phase::prompt ? 1U : 0U;
    while (last < held && std::ranges::binary_search(stored, end - last - 1)) ++last;
  }
  std::uint64_t tokens = 0, end = 0;  ///< number of prompt tokens; end of the prompt
  std::uint64_t held = 0, last = 0;   ///< prompt tokens with queries; of these, the ones in the unbroken run
                                      ///< at the prompt's end
};

std::string query_text(const Header& header) {
  if (!trace::holds_queries(header)) return "none";
  if (header.query_token.empty()) return "all " + std::to_string(header.n_tokens());
  const PromptQueries prompt(header);
  return join({prompt.last > 0 ? "the last " + std::to_string(prompt.last) : "",
               prompt.held > prompt.last ? std::to_string(prompt.held - prompt.last) +
                                               (prompt.last > 0 ? " of the others" : " spread over it")
                                         : "",
               prompt.held == 0 ? "none" : ""},
              " and ") +
         " of " + std::to_string(prompt.tokens) + " prompt tokens (" + printable(header.capture.q_policy) +
         "), and " + std::to_string(header.n_query_rows() - prompt.held) + " behind it";
}

std::string column_text(const Header& header) {
  if (header.counted_tokens == 0) return header.query_token.empty() ? "" : "none";
  return "attention of all " + std::to_string(header.counted_tokens) +
         " prompt tokens to each of them, in sum and sum of squares";
}

/// The attention rows that the trace lacks and some policies need in replay.
std::string lacking_text(const Header& header) {
  if (!trace::holds_queries(header)) return "queries: replay refuses, by name, policies that need them";
  if (header.query_token.empty()) return "";
  const PromptQueries prompt(header);
  return "single attention rows of " + std::to_string(prompt.tokens - prompt.held) +
         " prompt tokens: replay refuses, by name, policies that need them";
}

std::string window_text(const trace::Model& model) {
  const auto windowed = std::ranges::count_if(model.layer_window, [](int w) { return w > 0; });
  if (windowed == 0) return "full attention";
  return (model.chunked ? "chunks in " : "sliding window in ") +
         analysis::count_text(static_cast<std::uint64_t>(windowed), "layer");
}

/// Says how many layers do not rotate, where some do.
std::string unrotated_text(const trace::Model& model) {
  std::uint64_t unrotated = 0;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    unrotated += trace::rotates(model, layer) ? 0 : 1;
  if (unrotated == model.n_layers) return model.rope_type == "none" ? ", no rotation" : "";
  if (unrotated == 0) return {};
  return ", no rotation in " + analysis::count_text(unrotated, "layer");
}

std::string time_text(const PhaseSum& sum) {
  if (sum.ns <= 0) return "not recorded";
  char rate[48];
  std::snprintf(rate, sizeof rate, ", %.4g tokens/s",
                static_cast<double>(sum.tokens) / (static_cast<double>(sum.ns) * 1e-9));
  return human_seconds(sum.ns) + " in " + std::to_string(sum.passes) +
         (sum.passes == 1 ? " pass" : " passes") + rate;
}

constexpr std::array kMarks{workload::Role::context, workload::Role::question, workload::Role::evidence};

std::uint64_t marked_tokens(const std::vector<std::uint32_t>& flags, std::uint32_t bit) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(flags, [&](std::uint32_t token) { return (token & bit) != 0; }));
}

/// The ranges of the tokens with a bit: "120:135, 300:301".
std::string marked_ranges(const std::vector<std::uint32_t>& flags, std::uint32_t bit, std::size_t most) {
  std::string out;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < flags.size();) {
    std::size_t end = begin;
    while (end < flags.size() && (flags[end] & bit) != 0) ++end;
    if (end > begin) {
      if (++count > most) return out + ", ...";
      out += (count > 1 ? ", " : "") + std::to_string(begin) + ":" + std::to_string(end);
    }
    begin = end + 1;
  }
  return out;
}

/// Number of tokens with each mark; null if the trace does not know the mark.
boost::json::object marks_json(const Header& header) {
  boost::json::object out;
  for (const workload::Role role : kMarks) {
    const std::uint32_t bit = role_flag(role);
    out[role_name(role)] = (header.flags_known & bit) != 0
                               ? boost::json::value(marked_tokens(header.token_flags, bit))
                               : boost::json::value(nullptr);
  }
  return out;
}

constexpr std::array kRoles{"", "system", "user", "assistant", "tool", "document"};

/// The sequences that end with a segment: "0, 2".
std::string sequences_ending(const Header& header, std::size_t segment) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < header.sequence_leaf.size(); ++i)
    if (header.sequence_leaf[i] == segment) out.push_back(std::to_string(i));
  return joined(out);
}

constexpr std::size_t kMostSegmentLines = 100;

/// Writes the segment tree, one line per segment, if there is more than a prompt and its answer.
void write_segments(std::ostream& out, const Header& header) {
  if (header.segments.size() <= 2 && header.sequence_leaf.size() <= 1) return;
  analysis::TextTable table;
  table.add_column("segment", analysis::Align::right);
  table.add_column("after", analysis::Align::right);
  table.add_column("phase", analysis::Align::left);
  table.add_column("turn", analysis::Align::right);
  table.add_column("role", analysis::Align::left);
  table.add_column("tokens", analysis::Align::right);
  table.add_column("before them", analysis::Align::right);
  table.add_column("ends sequence", analysis::Align::left);
  const std::size_t n = std::min(header.segments.size(), kMostSegmentLines);
  for (std::size_t s = 0; s < n; ++s) {
    const trace::Segment& segment = header.segments[s];
    table.add_row({std::to_string(s), segment.parent < 0 ? "-" : std::to_string(segment.parent),
                   phase_name(segment.phase), std::to_string(segment.turn), kRoles[segment.role],
                   std::to_string(segment.count), std::to_string(segment.path_len),
                   sequences_ending(header, s)});
  }
  out << '\n';
  table.print(out);
  if (n < header.segments.size()) out << "and " << header.segments.size() - n << " more\n";
}

boost::json::array segments_json(const Header& header) {
  boost::json::array out;
  for (const trace::Segment& segment : header.segments)
    out.push_back(
        {{"parent", segment.parent < 0 ? boost::json::value(nullptr) : boost::json::value(segment.parent)},
         {"phase", phase_name(segment.phase)},
         {"turn", segment.turn},
         {"role", segment.role == 0 ? boost::json::value(nullptr) : boost::json::value(kRoles[segment.role])},
         {"begin", segment.begin},
         {"tokens", segment.count},
         {"tokens_before", segment.path_len}});
  return out;
}

boost::json::object model_json(const trace::Model& model) {
  boost::json::array layer_rotates;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    layer_rotates.emplace_back(trace::rotates(model, layer));
  boost::json::value sinks = nullptr;  // or of every layer those of its query heads
  if (!model.sinks.empty()) {
    boost::json::array& of_layers = sinks.emplace_array();
    for (auto from = model.sinks.begin(); from != model.sinks.end(); from += model.n_q_heads)
      of_layers.emplace_back(boost::json::array(from, from + model.n_q_heads));
  }
  return {{"name", printable(model.name)},
          {"revision", printable(model.revision)},
          {"model_type", printable(model.model_type)},
          {"architecture", printable(model.architecture)},
          {"n_layers", model.n_layers},
          {"n_q_heads", model.n_q_heads},
          {"n_kv_heads", model.n_kv_heads},
          {"head_dim", model.head_dim},
          {"v_head_dim", model.v_head_dim},
          {"hidden_size", model.hidden_size},
          {"vocab_size", model.vocab_size},
          {"attn_scale", model.attn_scale},
          {"logit_softcap", model.logit_softcap},
          {"sinks", sinks},
          {"values_in_keys", model.values_in_keys},
          {"rope_type", printable(model.rope_type)},
          {"rope_theta", model.rope_theta},
          {"rope_layout", model.rope_layout},
          {"layer_window", boost::json::value_from(model.layer_window)},
          {"chunked", model.chunked},
          {"layer_rotates", layer_rotates},
          {"weights_sha256", printable(model.weights_sha256)}};
}

boost::json::value or_null(const std::string& text) {
  return text.empty() ? boost::json::value(nullptr) : boost::json::value(printable(text));
}

boost::json::object capture_json(const trace::Capture& capture) {
  return {{"source", printable(capture.source)},
          {"device_name", printable(capture.device_name)},
          {"cpu_model", printable(capture.cpu_model)},
          {"compute_dtype", printable(capture.compute_dtype)},
          {"accum_dtype", printable(capture.accum_dtype)},
          {"attention_kernel", printable(capture.attention_kernel)},
          {"software", printable(capture.software)},
          {"sampling", printable(capture.sampling)},
          {"q_policy", printable(capture.q_policy)},
          {"row_policy", printable(capture.row_policy)},
          {"verified", printable(capture.verified)},
          {"workload", or_null(capture.workload)},
          {"workload_item", or_null(capture.workload_item)},
          {"rank", or_null(capture.rank)},
          {"threads", capture.threads},
          {"prefill_chunk", capture.prefill_chunk},
          {"seed", capture.seed}};
}

boost::json::object phase_json(const PhaseSum& sum) {
  return {{"tokens", sum.tokens},
          {"passes", sum.passes},
          {"duration_ns", sum.ns > 0 ? boost::json::value(sum.ns) : boost::json::value(nullptr)}};
}

std::uint64_t file_bytes(const trace::Source& source) {
  return std::filesystem::file_size(source.name());
}

}  // namespace

std::string marks_text(const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       std::size_t ranges) {
  std::vector<std::string> parts;
  for (const workload::Role role : kMarks) {
    const std::uint32_t bit = role_flag(role);
    if ((flags_known & bit) == 0) continue;
    const std::uint64_t count = marked_tokens(token_flags, bit);
    parts.push_back(std::string(role_name(role)) + " " +
                    (count == 0 ? "none"
                                : analysis::count_text(count, "token") + " (" +
                                      marked_ranges(token_flags, bit, ranges) + ")"));
  }
  return join(parts, "; ");
}

void write_trace_table(std::ostream& out, const trace::Source& source) {
  const Header& header = source.header();
  const trace::Model& model = header.model;
  const trace::Capture& capture = header.capture;
  const PhaseSum prompt = sum_of(header, true), decode = sum_of(header, false);
  // A line, unless its value is empty.
  const auto line = [&](const char* key, const std::string& value) {
    if (!value.empty()) out << std::left << std::setw(18) << key << value << '\n';
  };
  line("trace", printable(source.name()) + " (" + bytes_text(file_bytes(source)) + ")");
  line("model",
       join({printable(model.name), printable(model.architecture), printable(model.revision)}, ", "));
  line("layers", std::to_string(model.n_layers) + ", " + window_text(model) + unrotated_text(model));
  line("heads",
       std::to_string(model.n_q_heads) + " query, " + std::to_string(model.n_kv_heads) + " KV (group " +
           std::to_string(model.group()) + "), dimension " + std::to_string(model.head_dim) +
           (model.values_in_keys ? ", of keys; values are their first " + std::to_string(model.v_head_dim)
                                 : "") +
           (model.sinks.empty() ? "" : "; a sink of each query head"));
  line("tokens", std::to_string(header.n_tokens()) + ": " + std::to_string(prompt.tokens) + " prompt, " +
                     std::to_string(decode.tokens) + " decode");
  line("segments", std::to_string(header.segments.size()) + ", " +
                       analysis::count_text(header.sequence_leaf.size(), "sequence") + " to replay");
  line("marked", marks_text(header.token_flags, header.flags_known, kMostRanges));
  line("stored", std::string(elem_name(header.elem)) + ": keys " +
                     bytes_text(tensor_bytes(header, Tensor::key)) + ", values " +
                     bytes_text(tensor_bytes(header, Tensor::value)) + ", queries " +
                     bytes_text(tensor_bytes(header, Tensor::query)));
  line("query rows", query_text(header));
  line("column statistics", column_text(header));
  line("lacking", lacking_text(header));
  line("attention rows", header.attention_token.empty() ? "none (recomputed from queries and keys)"
                                                        : std::to_string(header.attention_token.size()));
  if (header.output_elem)
    line("output weights",
         std::string(elem_name(*header.output_elem)) + ": " + bytes_text(output_weight_bytes(header)));
  line("also stored", join({header.layer_ns.empty() && header.attn_ns.empty() ? "" : "times per layer",
                            header.text_offset.empty() ? "" : "text",
                            header.token_logprob.empty() ? "" : "log probabilities"},
                           ", "));
  line("prefill", time_text(prompt));
  line("decode", time_text(decode));
  line("recorded by", join({printable(header.writer), printable(capture.source)}, ", "));
  line("on", join({printable(capture.device_name), printable(capture.cpu_model),
                   capture.threads == 0 ? "" : analysis::count_text(capture.threads, "thread")},
                  ", "));
  line("arithmetic", join({printable(capture.compute_dtype), printable(capture.attention_kernel)}, ", "));
  line("workload", join({printable(capture.workload), printable(capture.workload_item)}, ", "));
  line("rank", printable(capture.rank));
  line("created", printable(header.created_utc));
  line("verified", printable(capture.verified));
  line("content sha256", printable(source.content_sha256()));
  write_segments(out, header);
}

void write_trace_json(std::ostream& out, const trace::Source& source) {
  const Header& header = source.header();
  boost::json::object stored{{"elem", elem_name(header.elem)},
                             {"key_bytes", tensor_bytes(header, Tensor::key)},
                             {"value_bytes", tensor_bytes(header, Tensor::value)},
                             {"query_bytes", tensor_bytes(header, Tensor::query)},
                             {"query_rows", trace::holds_queries(header) ? header.n_query_rows() : 0},
                             {"counted_tokens", header.counted_tokens},
                             {"attention_rows", header.attention_token.size()},
                             {"output_weight_bytes", output_weight_bytes(header)},
                             {"layer_times", !header.layer_ns.empty()},
                             {"attention_times", !header.attn_ns.empty()},
                             {"text", !header.text_offset.empty()},
                             {"logprob", !header.token_logprob.empty()}};
  const boost::json::object page{{"trace", source.name()},
                                 {"file_bytes", file_bytes(source)},
                                 {"file_uuid", printable(header.file_uuid)},
                                 {"created_utc", printable(header.created_utc)},
                                 {"writer", printable(header.writer)},
                                 {"content_sha256", printable(source.content_sha256())},
                                 {"model", model_json(header.model)},
                                 {"n_tokens", header.n_tokens()},
                                 {"n_segments", header.segments.size()},
                                 {"n_sequences", header.sequence_leaf.size()},
                                 {"marked_tokens", marks_json(header)},
                                 {"segments", segments_json(header)},
                                 {"sequence_leaf", boost::json::value_from(header.sequence_leaf)},
                                 {"prompt", phase_json(sum_of(header, true))},
                                 {"decode", phase_json(sum_of(header, false))},
                                 {"stored", stored},
                                 {"capture", capture_json(header.capture)}};
  out << page << '\n';
}

}  // namespace kvsim::tools
