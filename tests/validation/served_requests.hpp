#pragma once
/// 300 conversations of ShareGPT, as LLMServingSim's workload has them.
#include <cstdint>
#include <span>

#include "traces/requests/request_trace.hpp"

namespace kvsim::cost {

struct ServedRequest {
  std::uint32_t arrival_us;
  std::uint16_t prompt, generated;    ///< tokens
  std::uint16_t like, shared_blocks;  ///< begins with as many whole blocks of 16 tokens of that request
};

/// LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT licence),
/// workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl: lengths and arrivals, and what the tokens of prompts have
/// in common.
std::span<const ServedRequest> sharegpt_requests();
/// The same as a trace in blocks of 16 tokens; the tail of a prompt is nobody else's.
requests::RequestTrace sharegpt_trace();

}  // namespace kvsim::cost
