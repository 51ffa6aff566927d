#include "tools/requests/request_table.hpp"

#include <cmath>
#include <ostream>

#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/quoted.hpp"

namespace kvsim::tools {
namespace {

using analysis::rounded_text;
using analysis::Value;
using prefix::Ceiling;

Value share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return static_cast<double>(part) / static_cast<double>(whole);
}

Value real_value(double value) {
  return std::isfinite(value) ? Value(value) : Value();
}

std::string percent(const Value& value) {
  const std::optional<double> number = analysis::number(value);
  return number ? rounded_text(100 * *number, 4) + " %" : "-";
}

const char* text_of(requests::Hashing hashing) {
  return hashing == requests::Hashing::chained ? "chained" : "content";
}
const char* text_of(requests::Tail tail) {
  return tail == requests::Tail::partial ? "partial" : "missing";
}
const char* text_of(requests::Generated generated) {
  switch (generated) {
    case requests::Generated::none:
      return "none";
    case requests::Generated::inferred:
      return "inferred";
    case requests::Generated::given:
      return "given";
  }
  return "";
}

/// A column and the field that it has for a trace.
struct Said {
  analysis::ColumnInfo column;
  Value value;
};

void say_distribution(std::vector<Said>& out, const std::string& key, const std::string& unit,
                      const std::string& of, const Spread& values) {
  const auto say = [&](const char* part, const char* what, double Spread::*field) {
    out.push_back({{key + part, unit, of + ": " + what}, real_value(values.*field)});
  };
  say("_mean", "mean", &Spread::mean);
  say("_p50", "median", &Spread::p50);
  say("_p90", "90th percentile, nearest rank", &Spread::p90);
  say("_p99", "99th percentile, nearest rank", &Spread::p99);
  say("_max", "longest", &Spread::max);
}

void say_sharing(std::vector<Said>& out, const std::optional<prefix::Sharing>& sharing) {
  const auto say = [&](const char* key, const char* unit, const char* what, const auto& of) {
    out.push_back({{key, unit, what}, sharing ? Value(of(*sharing)) : Value()});
  };
  using S = prefix::Sharing;
  say("blocks", "", "blocks of all prompts", [](const S& s) { return s.blocks; });
  say("distinct_blocks", "", "different ones, each behind its prefix", [](const S& s) { return s.distinct; });
  say("seen_once", "share", "of the distinct: in one prompt alone",
      [](const S& s) { return share(s.seen_once, s.distinct); });
  say("roots", "", "different first blocks", [](const S& s) { return s.roots; });
  say("branching", "", "blocks that more than one other stands behind",
      [](const S& s) { return s.branching; });
  say("widest", "", "blocks that stand behind one, at most", [](const S& s) { return s.widest; });
  say("deepest", "", "blocks of the longest prompt", [](const S& s) { return s.deepest; });
  say("top_reuse", "share", "of the reuses: by the 1 % of distinct blocks that are reused most",
      [](const S& s) { return s.top_share; });
  say("ceiling", "share", "of all prompt tokens: those that a cache without limits would have had",
      [](const S& s) { return share(s.all.hit_tokens, s.all.tokens); });
  say("ceiling_tokens", "tokens", "these", [](const S& s) { return s.all.hit_tokens; });
  say("ceiling_whole", "share", "the same of whole blocks alone",
      [](const S& s) { return share(s.all.whole_tokens, s.all.tokens); });
  say("half_ceiling", "share", "the ceiling over the last half of the requests",
      [](const S& s) { return share(s.last_half.hit_tokens, s.last_half.tokens); });
  say("half_ceiling_tokens", "tokens", "these", [](const S& s) { return s.last_half.hit_tokens; });
  say("half_tokens", "tokens", "prompt tokens of the last half",
      [](const S& s) { return s.last_half.tokens; });
  say("half_ceiling_whole", "share", "the same of whole blocks alone",
      [](const S& s) { return share(s.last_half.whole_tokens, s.last_half.tokens); });
}

std::vector<Said> said_of(const NamedRequests& trace) {
  const prefix::RequestSummary& summary = trace.summary;
  const bool blocks = summary.sharing.has_value();
  std::vector<Said> out{
      {{"trace", "", "name of the file"}, trace.name},
      {{"format", "", "as it was read"}, trace.format},
      {{"block_tokens", "tokens", "of a block; none: the trace does not say which prompts share tokens"},
       blocks ? Value(std::uint64_t{trace.block_tokens}) : Value()},
      {{"hash", "", "what an id names: chained or content"},
       blocks ? Value(text_of(trace.hashing)) : Value()},
      {{"tail", "", "whether tokens behind the last whole block have an id"},
       blocks ? Value(text_of(trace.tail)) : Value()},
      {{"generated_blocks", "", "how those are known: none, inferred or given"},
       blocks ? Value(text_of(trace.generated)) : Value()},
      {{"requests", "", "in the trace"}, summary.requests},
      {{"end", "s", "when the last request arrives that waits for none"}, summary.end_s},
      {{"waiting", "", "requests that arrive when their parent has ended"}, summary.waiting},
      {{"sessions", "", "in the trace"}, summary.sessions},
      {{"later_turns", "", "requests that continue one of the trace"}, summary.later_turns},
      {{"prompt_tokens", "tokens", "of all requests"}, summary.prompt_tokens},
      {{"generated_tokens", "tokens", "of all requests"}, summary.generated_tokens}};
  say_distribution(out, "prompt", "tokens", "prompts", summary.prompt);
  say_distribution(out, "generated", "tokens", "answers", summary.generated);
  say_distribution(out, "gap", "s", "time between arrivals", summary.gap_s);
  out.push_back({{"gap_cv", "", "standard deviation of the gaps over their mean; 1: a Poisson process"},
                 std::isfinite(summary.gap_s.mean) ? Value(summary.gap_cv) : Value()});
  say_sharing(out, summary.sharing);
  return out;
}

std::string lengths_text(const Spread& values, int decimals) {
  return "mean " + rounded_text(values.mean, decimals) + ", median " + rounded_text(values.p50, decimals) +
         ", p90 " + rounded_text(values.p90, decimals) + ", p99 " + rounded_text(values.p99, decimals) +
         ", longest " + rounded_text(values.max, decimals);
}

void line(std::ostream& out, const std::string& name, const std::string& text) {
  out << "  " << name << std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') << text << '\n';
}

void write_ceiling(std::ostream& out, const char* name, const Ceiling& ceiling) {
  line(out, name,
       percent(share(ceiling.hit_tokens, ceiling.tokens)) + " (" + std::to_string(ceiling.hit_tokens) +
           " of " + std::to_string(ceiling.tokens) + " prompt tokens), of whole blocks " +
           percent(share(ceiling.whole_tokens, ceiling.tokens)));
}

void write_one(std::ostream& out, const NamedRequests& trace) {
  const prefix::RequestSummary& summary = trace.summary;
  out << trace.name << '\n';
  line(out, "format",
       trace.format + (summary.sharing ? ", blocks of " + std::to_string(trace.block_tokens) + " tokens, " +
                                             text_of(trace.hashing) + " ids, tail " + text_of(trace.tail) +
                                             ", generated blocks " + text_of(trace.generated)
                                       : ", without ids of blocks"));
  line(out, "requests",
       std::to_string(summary.requests) + " in " + rounded_text(summary.end_s, 3) + " s" +
           (summary.waiting > 0
                ? ", of these " + std::to_string(summary.waiting) + " when their parent has ended"
                : ""));
  if (std::isfinite(summary.gap_s.mean))
    line(out, "gaps",
         lengths_text(summary.gap_s, 3) + " s, deviation over mean " + rounded_text(summary.gap_cv, 2));
  line(out, "prompts", std::to_string(summary.prompt_tokens) + " tokens: " + lengths_text(summary.prompt, 0));
  line(out, "answers",
       std::to_string(summary.generated_tokens) + " tokens: " + lengths_text(summary.generated, 0));
  if (summary.sessions > 0)
    line(out, "sessions",
         std::to_string(summary.sessions) + ", " + std::to_string(summary.later_turns) +
             " requests continue another");
  std::string categories;
  for (const auto& [name, count] : summary.categories)
    categories += (categories.empty() ? "" : ", ") + in_quotes(name) + " " + std::to_string(count);
  if (!categories.empty()) line(out, "categories", categories);
  if (!summary.sharing) return;
  const prefix::Sharing& sharing = *summary.sharing;
  line(out, "blocks",
       std::to_string(sharing.blocks) + ", " + std::to_string(sharing.distinct) + " distinct, " +
           percent(share(sharing.seen_once, sharing.distinct)) + " of these seen once");
  line(out, "tree",
       std::to_string(sharing.roots) + " first blocks, " + std::to_string(sharing.branching) +
           " branching, at most " + std::to_string(sharing.widest) + " wide and " +
           std::to_string(sharing.deepest) + " deep");
  line(out, "reuse",
       "the most reused 1 % of blocks have " + percent(Value(sharing.top_share)) + " of reuses");
  write_ceiling(out, "ceiling", sharing.all);
  write_ceiling(out, "last half", sharing.last_half);
}

}  // namespace

analysis::Records request_records(const std::vector<NamedRequests>& traces) {
  analysis::Records out;
  for (const NamedRequests& trace : traces) {
    out.columns.clear();
    out.rows.emplace_back();
    for (Said& said : said_of(trace)) {
      out.columns.push_back(std::move(said.column));
      out.rows.back().push_back(std::move(said.value));
    }
  }
  return out;
}

void write_requests_text(std::ostream& out, const std::vector<NamedRequests>& traces) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (i > 0) out << '\n';
    write_one(out, traces[i]);
  }
  out << "\nceiling: the leading run of each prompt's blocks that earlier requests had, in a cache without "
         "limits\n";
}

}  // namespace kvsim::tools
