#include "traces/requests/generate_requests.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/order.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "traces/requests/portable_draws.hpp"
#include "traces/requests/trace_builder.hpp"

namespace kvsim::requests {
namespace {

enum Kind : std::uint32_t { kChat, kDocument, kAgent };
constexpr const char* kKindNames[] = {"chat", "document", "agent"};
constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 32;

/// The blocks of a prompt that grows, known by the pieces of text it is made of.
class PromptBlocks {
 public:
  explicit PromptBlocks(std::uint32_t block_tokens) : size_(block_tokens) {}

  /// Appends `tokens` tokens of a text. Equal keys are equal texts, of which this is the beginning.
  void append(std::uint64_t text_key, std::uint64_t tokens) {
    std::uint64_t at = 0;
    while (at < tokens) {
      const std::uint64_t taken = std::min(tokens - at, size_ - tokens_ % size_);
      state_ = combine({state_, text_key, at, taken});
      at += taken;
      tokens_ += taken;
      if (tokens_ % size_ == 0) whole_.push_back(state_);
    }
  }

  std::uint64_t tokens() const { return tokens_; }
  const std::vector<BlockId>& whole() const { return whole_; }
  /// Appends the ids of all blocks, that of the rest included, to `out`.
  void append_to(std::vector<BlockId>& out) const {
    out.insert(out.end(), whole_.begin(), whole_.end());
    if (tokens_ % size_ != 0) out.push_back(state_);
  }

 private:
  std::uint64_t size_, tokens_ = 0;
  std::uint64_t state_ = 0;  ///< a digest of all pieces so far
  std::vector<BlockId> whole_;
};

/// A request before all of them are put into the order of their times.
struct Planned {
  double arrival_s = 0, delay_s = 0;
  std::uint32_t session = 0, turn = 0, kind = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0;
  std::uint64_t first_block = 0, n_blocks = 0, first_final = 0, n_final = 0;
};

class Generator {
 public:
  explicit Generator(const GenerateOptions& options)
      : options_(options),
        shape_(options.shape.entries.empty() ? parse_shape("") : options.shape),
        system_(shape_.count("system_prompts"), shape_.real("system_popularity")),
        documents_(shape_.count("documents"), shape_.real("document_popularity")) {}

  RequestTrace run() {
    // A session may begin as long as requests that arrive before it are too few.
    std::priority_queue<double, std::vector<double>, std::greater<>> ahead;
    std::uint64_t certain = 0;
    double begin = 0;
    for (std::uint32_t session = 0;; ++session) {
      begin = next_begin(session, begin);
      for (; !ahead.empty() && ahead.top() <= begin; ahead.pop()) ++certain;
      if (certain >= options_.requests) break;
      const std::size_t before = planned_.size();
      plan_session(session, begin);
      for (std::size_t i = before; i < planned_.size(); ++i) ahead.push(planned_[i].arrival_s);
    }
    return ordered();
  }

 private:
  std::uint64_t key(std::uint64_t session, std::string_view what, std::uint64_t i = 0) const {
    return combine({options_.seed, key_of("requests"), session, key_of(what), i});
  }
  std::uint64_t length(std::uint64_t draw, const char* median) const {
    const double drawn =
        lognormal_draw(draw, static_cast<double>(shape_.count(median)), shape_.real("spread"));
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(drawn), 1, kMostTokens);
  }
  double pause(std::uint64_t session, std::uint64_t turn, const char* mean) const {
    return shape_.real(mean) * exponential_draw(key(session, "pause", turn));
  }

  double next_begin(std::uint64_t session, double before) const {
    const std::uint64_t draw = key(session, "begin");
    if (options_.arrivals == Arrivals::bursty) {
      const double form = 1 / (shape_.real("burst_cv") * shape_.real("burst_cv"));
      return before + gamma_draw(draw, form) / (form * options_.rate);
    }
    if (options_.arrivals == Arrivals::poisson) return before + exponential_draw(draw) / options_.rate;
    // Thinning (Lewis and Shedler 1979): of a process at the highest rate, a share that follows the sine.
    const double swing = shape_.share("swing");
    for (std::uint64_t i = 0;; ++i) {
      before += exponential_draw(combine({draw, i, 1})) / (options_.rate * (1 + swing));
      const double rate = 1 + swing * portable_sine(before / shape_.real("period_s"));
      if (uniform01(combine({draw, i, 2})) * (1 + swing) < rate) return before;
    }
  }

  Kind kind_of(std::uint64_t session) const {
    const double u = uniform01(key(session, "kind"));
    if (u < options_.mix.chat) return kChat;
    return u < options_.mix.chat + options_.mix.document ? kDocument : kAgent;
  }

  void plan_session(std::uint32_t session, double begin) {
    const Kind kind = kind_of(session);
    PromptBlocks prompt(options_.block_tokens);
    const std::uint64_t system = combine({kind, system_.draw(key(session, "system"))});
    const std::uint64_t system_key = key(0, "system text", system);
    prompt.append(system_key, length(combine({system_key, 1}), "system_tokens"));
    if (kind == kDocument) {
      const std::uint64_t document = key(0, "document text", documents_.draw(key(session, "document")));
      prompt.append(document, length(combine({document, 1}), "document_tokens"));
    }
    const char* turns[] = {"chat_turns", "questions", "agent_turns"};
    const std::uint64_t n = geometric_draw(key(session, "turns"), shape_.real(turns[kind]));
    double at = begin;
    for (std::uint64_t turn = 0; turn < n; ++turn) {
      const char* text = kind == kAgent && turn > 0 ? "tool_tokens" : "text_tokens";
      prompt.append(key(session, "text", turn), length(key(session, "text length", turn), text));
      const double delay = turn == 0 ? 0 : pause(session, turn, kind == kAgent ? "tool_s" : "think_s");
      at += delay;
      const std::uint64_t answer =
          length(key(session, "answer length", turn), kind == kAgent ? "call_tokens" : "answer_tokens");
      plan(session, static_cast<std::uint32_t>(turn), kind, at, delay, prompt, answer);
      prompt.append(key(session, "answer", turn), answer);
      Planned& planned = planned_.back();
      planned.first_final = blocks_.size();
      planned.n_final = prompt.whole().size();
      blocks_.insert(blocks_.end(), prompt.whole().begin(), prompt.whole().end());
      at += static_cast<double>(answer) * shape_.real("token_s");
      if (prompt.tokens() > kMostTokens || blocks_.size() > kMostBlocks)
        usage_error("prompts grow beyond what a trace can hold", "requests generate",
                    "Ask for fewer turns, shorter texts or larger blocks.");
    }
  }

  void plan(std::uint32_t session, std::uint32_t turn, Kind kind, double arrival, double delay,
            const PromptBlocks& prompt, std::uint64_t answer) {
    Planned planned{.arrival_s = arrival, .delay_s = delay, .session = session, .turn = turn, .kind = kind};
    planned.prompt_tokens = prompt.tokens();
    planned.generated_tokens = answer;
    planned.first_block = blocks_.size();
    prompt.append_to(blocks_);
    planned.n_blocks = blocks_.size() - planned.first_block;
    planned_.push_back(planned);
  }

  /// The first requests of all that were planned.
  RequestTrace ordered() {
    std::vector<std::uint32_t> order = least_first<std::uint32_t>(
        planned_.size(), [&](std::uint32_t from) { return planned_[from].arrival_s; });
    order.resize(std::min<std::size_t>(order.size(), options_.requests));
    RequestTrace out{.format = "generated",
                     .block_tokens = options_.block_tokens,
                     .generated = Generated::given,
                     .categories = {std::begin(kKindNames), std::end(kKindNames)}};
    std::vector<std::uint32_t> latest, numbers;  // request of each session planned; its number among sessions
    for (const std::uint32_t from : order) append(out, planned_[from], latest, numbers);
    return out;
  }

  void append(RequestTrace& out, const Planned& planned, std::vector<std::uint32_t>& latest,
              std::vector<std::uint32_t>& numbers) const {
    if (latest.size() <= planned.session) {
      latest.resize(planned.session + 1, kNone);
      numbers.resize(planned.session + 1, kNone);
    }
    if (numbers[planned.session] == kNone) {
      numbers[planned.session] = static_cast<std::uint32_t>(out.sessions.size());
      out.sessions.push_back(std::to_string(out.requests.size()));
    }
    const bool waits = options_.after_parent && planned.turn > 0;
    Request request{.time_s = waits ? planned.delay_s : planned.arrival_s};
    // To a microsecond, which is how files have it.
    request.time_s = std::nearbyint(request.time_s * 1e6) / 1e6;
    request.prompt_tokens = static_cast<std::uint32_t>(planned.prompt_tokens);
    request.generated_tokens = static_cast<std::uint32_t>(planned.generated_tokens);
    request.session = numbers[planned.session];
    request.parent = planned.turn == 0 ? kNone : latest[planned.session];
    request.turn = planned.turn + 1;
    request.category = planned.kind;
    request.after_parent = waits;
    request.n_blocks = static_cast<std::uint32_t>(planned.n_blocks);
    request.first_block = out.blocks.size();
    copy(out, planned.first_block, planned.n_blocks);
    request.n_final_blocks = static_cast<std::uint32_t>(planned.n_final);
    request.first_final_block = out.blocks.size();
    copy(out, planned.first_final, planned.n_final);
    latest[planned.session] = static_cast<std::uint32_t>(out.requests.size());
    out.requests.push_back(request);
  }

  void copy(RequestTrace& out, std::uint64_t first, std::uint64_t n) const {
    const auto begin = blocks_.begin() + static_cast<std::ptrdiff_t>(first);
    out.blocks.insert(out.blocks.end(), begin, begin + static_cast<std::ptrdiff_t>(n));
  }

  const GenerateOptions& options_;
  ParamValues shape_;
  ZipfDraws system_, documents_;
  std::vector<Planned> planned_;
  std::vector<BlockId> blocks_;
};

}  // namespace

const std::vector<ParamSpec>& shape_params() {
  static const std::vector<ParamSpec> kParams{
      count_param("system_prompts", "8", {1, 1e6}, "system prompts of each kind of session"),
      real_param("system_popularity", "1", {0, 8}, "exponent of Zipf's law over them; 0: all alike"),
      count_param("system_tokens", "1200", {1, 1e8}, "median of a system prompt", "tokens"),
      count_param("documents", "200", {1, 1e6}, "documents that questions are about"),
      real_param("document_popularity", "0.8", {0, 8}, "exponent of Zipf's law over them"),
      count_param("document_tokens", "12000", {1, 1e8}, "median of a document", "tokens"),
      real_param("chat_turns", "4", {1, 1e4}, "mean of a conversation's turns (geometric)"),
      real_param("questions", "2", {1, 1e4}, "mean of a session's questions about its document"),
      real_param("agent_turns", "20", {1, 1e4}, "mean of an agent's calls"),
      count_param("text_tokens", "300", {1, 1e8}, "median of what a person writes", "tokens"),
      count_param("answer_tokens", "250", {1, 1e8}, "median of an answer", "tokens"),
      count_param("call_tokens", "120", {1, 1e8}, "median of what an agent generates", "tokens"),
      count_param("tool_tokens", "900", {1, 1e8}, "median of a tool's result", "tokens"),
      real_param("spread", "0.8", {0, 4}, "standard deviation of the logarithm of every length"),
      real_param("think_s", "30", {0, 1e6}, "mean time between an answer and a person's next turn", "s"),
      real_param("tool_s", "3", {0, 1e6}, "mean time that a tool takes", "s"),
      real_param("token_s", "0.02", {0, 1e3}, "per generated token, for the order of later turns", "s"),
      real_param("burst_cv", "4", {0.1, 100}, "of bursty gaps: standard deviation over mean"),
      share_param("swing", "0.8", "of a diurnal rate around its mean"),
      real_param("period_s", "86400", {1, 1e9}, "of a diurnal rate", "s")};
  return kParams;
}

ParamValues parse_shape(std::string_view text) {
  ParamValues out;
  for (const ParamSpec& param : shape_params())
    out.entries.push_back(parse_value(param, param.fallback, "--shape"));
  if (trimmed(text).empty()) return out;
  std::vector<std::string> named;
  for (const std::string& item : comma_list(text)) {
    const std::size_t equals = item.find('=');
    const std::string name(trimmed(std::string_view(item).substr(0, equals)));
    const auto found = std::find_if(shape_params().begin(), shape_params().end(),
                                    [&](const ParamSpec& param) { return param.name == name; });
    if (equals == std::string::npos || found == shape_params().end())
      usage_error("unknown setting " + in_quotes(name), "--shape",
                  suggestion(name, param_names(shape_params())));
    if (std::find(named.begin(), named.end(), name) != named.end())
      usage_error("says " + in_quotes(name) + " twice", "--shape");
    named.push_back(name);
    out.entries[static_cast<std::size_t>(found - shape_params().begin())] =
        parse_value(*found, trimmed(std::string_view(item).substr(equals + 1)), "--shape");
  }
  return out;
}

Mix parse_mix(std::string_view text) {
  Mix mix{.chat = 0, .document = 0, .agent = 0};
  double* shares[] = {&mix.chat, &mix.document, &mix.agent};
  const std::vector<std::string> names(std::begin(kKindNames), std::end(kKindNames));
  for (const std::string& item : comma_list(text)) {
    const std::size_t equals = item.find('=');
    const std::string name(trimmed(std::string_view(item).substr(0, equals)));
    const auto found = std::find(names.begin(), names.end(), name);
    if (equals == std::string::npos || found == names.end())
      usage_error("unknown kind of session " + in_quotes(name), "--mix", suggestion(name, names));
    double& share = *shares[found - names.begin()];
    if (share > 0) usage_error("says " + in_quotes(name) + " twice", "--mix");
    share = parse_value({.name = name, .type = ParamType::share},
                        trimmed(std::string_view(item).substr(equals + 1)), "--mix")
                .number;
  }
  if (std::abs(mix.chat + mix.document + mix.agent - 1) > 1e-9)
    usage_error("shares do not sum to 1", "--mix " + std::string(text));
  return mix;
}

RequestTrace generate_requests(const GenerateOptions& options) {
  if (!(options.rate > 0 && options.rate <= 1e6))
    usage_error("is no number of sessions a second (above 0, up to 1,000,000)", "--rate");
  if (options.block_tokens == 0 || options.block_tokens > kMostTokens)
    usage_error("is no size of a block", "--block-tokens");
  if (options.requests == 0 || options.requests > 100000000)
    usage_error("is no number of requests (1 to 100,000,000)", "--requests");
  return Generator(options).run();
}

}  // namespace kvsim::requests
