// kvsim requests info: how many requests, how long, how much they share.
#include <cmath>
#include <iosfwd>
#include <ostream>

#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/records.hpp"
#include "sim/base/message_text.hpp"
#include "sim/requests/prefix/request_summary.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"

namespace kvsim::tools {
namespace {

struct NamedRequests {
  std::string name{}, format{};
  std::uint32_t block_tokens = 0;  ///< 0: it has no blocks
  requests::Hashing hashing{};
  requests::Tail tail{};
  requests::Generated generated{};
  prefix::RequestSummary summary{};
};

using analysis::as_field;
using analysis::rounded_text;
using analysis::Value;
using prefix::Ceiling;

Value share(std::uint64_t part, std::uint64_t whole) {
  return analysis::ratio(static_cast<double>(part), static_cast<double>(whole));
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

using Traces = analysis::Columns<NamedRequests>;

void add_distribution(Traces& out, const std::string& key, const std::string& unit, const std::string& of,
                      Spread prefix::RequestSummary::*values) {
  const auto add = [&](const char* part, const char* what, double Spread::*field) {
    out.emplace_back(key + part, unit, of + ": " + what,
                     [=](const NamedRequests& trace) { return trace.summary.*values.*field; });
  };
  add("_mean", "mean", &Spread::mean);
  add("_p50", "median", &Spread::p50);
  add("_p90", "90th percentile, nearest rank", &Spread::p90);
  add("_p99", "99th percentile, nearest rank", &Spread::p99);
  add("_max", "longest", &Spread::max);
}

Traces sharing_columns() {
  using S = prefix::Sharing;
  const auto of = [](auto read) {
    return [read](const NamedRequests& trace) {
      return trace.summary.sharing ? as_field(std::invoke(read, *trace.summary.sharing)) : Value();
    };
  };
  const auto part = [&](Ceiling S::*window, std::uint64_t Ceiling::*hits) {
    return of([=](const S& s) { return share(s.*window.*hits, (s.*window).tokens); });
  };
  return {
      {"blocks", "", "blocks of all prompts", of(&S::blocks)},
      {"distinct_blocks", "", "different ones, each behind its prefix", of(&S::distinct)},
      {"seen_once", "share", "of the distinct: in one prompt alone",
       of([](const S& s) { return share(s.seen_once, s.distinct); })},
      {"roots", "", "different first blocks", of(&S::roots)},
      {"branching", "", "blocks that more than one other stands behind", of(&S::branching)},
      {"widest", "", "blocks that stand behind one, at most", of(&S::widest)},
      {"deepest", "", "blocks of the longest prompt", of(&S::deepest)},
      {"top_reuse", "share", "of the reuses: by the 1 % of distinct blocks that are reused most",
       of(&S::top_share)},
      {"ceiling", "share", "of all prompt tokens: those that a cache without limits would have had",
       part(&S::all, &Ceiling::hit_tokens)},
      {"ceiling_tokens", "tokens", "these", of([](const S& s) { return s.all.hit_tokens; })},
      {"ceiling_whole", "share", "the same of whole blocks alone", part(&S::all, &Ceiling::whole_tokens)},
      {"elsewhere", "share",
       "of all prompt tokens: those of blocks that earlier requests had, but behind another prefix, as a cache "
       "keyed by piece finds them; ids of content alone tell",
       of([](const S& s) {
         return s.elsewhere_tokens ? share(*s.elsewhere_tokens, s.all.tokens) : Value();
       })},
      {"elsewhere_tokens", "tokens", "these", of([](const S& s) { return s.elsewhere_tokens; })},
      {"half_ceiling", "share", "the ceiling over the last half of the requests",
       part(&S::last_half, &Ceiling::hit_tokens)},
      {"half_ceiling_tokens", "tokens", "these", of([](const S& s) { return s.last_half.hit_tokens; })},
      {"half_tokens", "tokens", "prompt tokens of the last half",
       of([](const S& s) { return s.last_half.tokens; })},
      {"half_ceiling_whole", "share", "the same of whole blocks alone",
       part(&S::last_half, &Ceiling::whole_tokens)}};
}

Traces columns() {
  using Row = NamedRequests;
  using S = prefix::RequestSummary;
  const auto sum = [](auto S::*what) { return [what](const Row& trace) { return trace.summary.*what; }; };
  const auto of_blocks = [](auto read) {
    return [read](const Row& trace) { return trace.summary.sharing ? as_field(read(trace)) : Value(); };
  };
  Traces out{{"trace", "", "name of the file", &Row::name},
             {"format", "", "as it was read", &Row::format},
             {"block_tokens", "tokens", "of a block; none: the trace does not say which prompts share tokens",
              of_blocks([](const Row& trace) { return trace.block_tokens; })},
             {"hash", "", "what an id names: chained or content",
              of_blocks([](const Row& trace) { return text_of(trace.hashing); })},
             {"tail", "", "whether tokens behind the last whole block have an id",
              of_blocks([](const Row& trace) { return text_of(trace.tail); })},
             {"generated_blocks", "", "how those are known: none, inferred or given",
              of_blocks([](const Row& trace) { return text_of(trace.generated); })},
             {"requests", "", "in the trace", sum(&S::requests)},
             {"end", "s", "when the last request arrives that waits for none", sum(&S::end_s)},
             {"waiting", "", "requests that arrive when their parent has ended", sum(&S::waiting)},
             {"sessions", "", "in the trace", sum(&S::sessions)},
             {"later_turns", "", "requests that continue one of the trace", sum(&S::later_turns)},
             {"prompt_tokens", "tokens", "of all requests", sum(&S::prompt_tokens)},
             {"generated_tokens", "tokens", "of all requests", sum(&S::generated_tokens)}};
  add_distribution(out, "prompt", "tokens", "prompts", &S::prompt);
  add_distribution(out, "generated", "tokens", "answers", &S::generated);
  add_distribution(out, "gap", "s", "time between arrivals", &S::gap_s);
  out.emplace_back("gap_cv", "", "standard deviation of the gaps over their mean; 1: a Poisson process",
                   [](const Row& trace) {
                     return std::isfinite(trace.summary.gap_s.mean) ? Value(trace.summary.gap_cv) : Value();
                   });
  return std::move(out) + sharing_columns();
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
  if (sharing.elsewhere_tokens)
    line(out, "elsewhere",
         percent(share(*sharing.elsewhere_tokens, sharing.all.tokens)) + " more (" +
             std::to_string(*sharing.elsewhere_tokens) + " tokens) behind another prefix than before");
}

/// For people: a paragraph per trace.
void write_requests_text(std::ostream& out, const std::vector<NamedRequests>& traces) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (i > 0) out << '\n';
    write_one(out, traces[i]);
  }
  out << "\nceiling: the leading run of each prompt's blocks that earlier requests had, in a cache without "
         "limits\n";
}

struct RequestsInfoOptions : OutputOptions {
  std::vector<std::string> files{};
  RequestOptions reading{};
  bool quiet = false;
};

void run_requests_info(const RequestsInfoOptions& options) {
  FormattedOutput output(options);
  std::vector<NamedRequests> traces;
  for (const std::string& file : options.files) {
    const requests::RequestTrace trace = read_shown(file, read_options(options.reading), options.quiet);
    traces.push_back({.name = file,
                      .format = trace.format,
                      .block_tokens = trace.block_tokens,
                      .hashing = trace.hashing,
                      .tail = trace.tail,
                      .generated = trace.generated,
                      .summary = prefix::summarize(trace)});
  }
  output.commit({.analysis = "requests info",
                 .traces = {},
                 .records = table_of(columns(), traces),
                 .console = [&](std::ostream& out) { write_requests_text(out, traces); }});
}

}  // namespace

void add_requests_info(Command requests) {
  Command command = requests.add_subcommand(
      "info", "What traces hold: requests, lengths, arrivals, what prompts share, the ceiling of any cache",
      R"(Examples:
  kvsim requests info traces/sample/requests/mooncake_conversation.jsonl.gz
  kvsim requests info a.jsonl.gz b.jsonl.gz --format csv
  kvsim requests info mine.jsonl --block-tokens 16 --generated inferred
)");
  const auto options = std::make_shared<RequestsInfoOptions>();
  command.add_required("FILE", options->files, "", "Traces of requests, gzip or not; -: standard input");
  add_request_options(command, options->reading);
  add_output_options(command, *options);
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { run_requests_info(*options); });
}

}  // namespace kvsim::tools
