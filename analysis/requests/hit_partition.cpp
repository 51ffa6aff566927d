#include "analysis/requests/hit_partition.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

using requests::Request;
using requests::RequestTrace;

HitPartition named_parts(const RequestTrace& trace, const std::vector<std::string>& names,
                         std::uint32_t Request::*index, const char* what) {
  HitPartition out{.names = names, .of = {}};
  for (const Request& request : trace.requests) out.of.push_back(request.*index);
  if (names.empty())
    usage_error("the trace names no " + std::string(what), "--by", "Say --by depth, or leave it out.");
  return out;
}

HitPartition turn_parts(const RequestTrace& trace) {
  HitPartition out;
  for (const Request& request : trace.requests) {
    const bool known = request.turn != requests::kNone && request.turn > 0;
    out.of.push_back(known ? request.turn - 1 : requests::kNone);
  }
  // Turns that no request is of have no row; numbers from a file are not sizes.
  std::vector<std::uint32_t> turns;
  for (const std::uint32_t turn : out.of)
    if (turn != requests::kNone) turns.push_back(turn);
  std::sort(turns.begin(), turns.end());
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  if (turns.empty()) usage_error("the trace has no turns", "--by", "Say --by depth, or leave it out.");
  for (std::uint32_t& turn : out.of)
    if (turn != requests::kNone)
      turn = static_cast<std::uint32_t>(std::lower_bound(turns.begin(), turns.end(), turn) - turns.begin());
  for (const std::uint32_t turn : turns) out.names.push_back(std::to_string(std::uint64_t{turn} + 1));
  return out;
}

HitPartition depth_parts(const RequestTrace& trace) {
  std::uint32_t longest = 0;
  for (const Request& request : trace.requests) longest = std::max(longest, request.prompt_tokens);
  HitPartition out;
  for (std::size_t depth = 0; first_of_depth(depth) * trace.block_tokens < longest; ++depth)
    out.names.push_back(std::to_string(first_of_depth(depth) * trace.block_tokens));
  return out;
}

}  // namespace

HitPartition partition(const RequestTrace& trace, HitParts parts) {
  switch (parts) {
    case HitParts::category:
      return named_parts(trace, trace.categories, &Request::category, "categories");
    case HitParts::session:
      return named_parts(trace, trace.sessions, &Request::session, "sessions");
    case HitParts::turn:
      return turn_parts(trace);
    case HitParts::depth:
      return depth_parts(trace);
    case HitParts::none:
      break;
  }
  return {.names = {""}, .of = std::vector<std::uint32_t>(trace.requests.size(), 0)};
}

}  // namespace kvsim::analysis
