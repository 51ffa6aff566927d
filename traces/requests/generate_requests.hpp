#pragma once
/// Makes traces of requests whose sharing is known: conversations, documents with questions, agents, behind
/// system prompts of which some are popular.
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/params.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// What the sessions are, as shares: "chat=0.6,document=0.3,agent=0.1".
struct Mix {
  double chat = 0.6;      ///< turns of a person: each prompt is the one before, its answer and new text
  double document = 0.3;  ///< questions about one of the documents, some of which are popular
  double agent = 0.1;     ///< calls of a model with tools: long loops, answers and results appended
};
/// Throws Error(usage) for other names, shares that are none, and those that do not sum to 1.
Mix parse_mix(std::string_view text);

/// When sessions begin.
enum class Arrivals {
  poisson,  ///< independent of each other
  bursty,   ///< gaps of a gamma distribution with a coefficient of variation above 1
  diurnal,  ///< a Poisson process whose rate follows a sine over the period
};

struct GenerateOptions {
  std::uint64_t seed = 1, requests = 1000;
  std::uint32_t block_tokens = 512;
  Mix mix{};
  Arrivals arrivals = Arrivals::poisson;
  double rate = 1;           ///< sessions that begin in a second, on average
  bool after_parent = true;  ///< later turns wait for the end of the turn before; else they have times
  ParamValues shape{};       ///< of shape_params(); empty: their defaults
};

/// Lengths, numbers and popularities: declared once, for help and checks.
const std::vector<ParamSpec>& shape_params();
/// "chat_turns=8,spread=0.5"; what is not named has its default. Throws Error(usage).
ParamValues parse_shape(std::string_view text);

/// Chained ids, a tail that is a block, generated blocks given (the whole ones). Requests stand in the order
/// in which they would arrive if every token took `token_s` to generate and prompts took no time. The same
/// options give the same trace on every machine. Throws Error(usage) for a rate, a block size or numbers that
/// are none, and for prompts that grow beyond 2^31 tokens.
RequestTrace generate_requests(const GenerateOptions& options);

}  // namespace kvsim::requests
