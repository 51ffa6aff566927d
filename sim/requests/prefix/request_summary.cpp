#include "sim/requests/prefix/request_summary.hpp"

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cmath>
#include <functional>

#include "sim/requests/prefix/found_tokens.hpp"

namespace kvsim::prefix {
namespace {

using requests::Request;
using requests::RequestTrace;

void count_hits(const RequestTrace& trace, const PrefixTree& tree, Sharing& out) {
  const std::vector<std::uint32_t> runs = unlimited_runs(tree);
  const auto add = [&](Ceiling& ceiling, std::size_t i) {
    const Request& request = trace.requests[i];
    ceiling.tokens += request.prompt_tokens;
    ceiling.hit_tokens += found_tokens(FoundTokens::all, request, runs[i], trace.block_tokens);
    ceiling.whole_tokens += found_tokens(FoundTokens::whole, request, runs[i], trace.block_tokens);
  };
  for (std::size_t i = 0; i < tree.requests(); ++i) {
    add(out.all, i);
    if (i >= tree.requests() / 2) add(out.last_half, i);
  }
  if (trace.hashing == requests::Hashing::chained) return;
  boost::unordered_flat_set<requests::BlockId> seen;
  out.elsewhere_tokens = 0;
  for (std::size_t i = 0; i < tree.requests(); ++i) {
    const Request& request = trace.requests[i];
    const std::span<const requests::BlockId> blocks = trace.prompt_blocks(request);
    for (std::size_t block = runs[i]; block < blocks.size(); ++block)
      if (seen.contains(blocks[block]))
        *out.elsewhere_tokens +=
            std::min<std::uint64_t>(trace.block_tokens, request.prompt_tokens - block * trace.block_tokens);
    const std::span<const requests::BlockId> left = trace.final_blocks(request);
    seen.insert(left.begin(), left.end());
  }
}

Sharing sharing_of(const RequestTrace& trace) {
  const PrefixTree tree(trace);
  Sharing out;
  std::vector<std::uint64_t> times(tree.size()), children(tree.size());
  for (std::size_t i = 0; i < tree.requests(); ++i) {
    out.blocks += tree.prompt(i).size();
    out.deepest = std::max<std::uint64_t>(out.deepest, tree.prompt(i).size());
    for (const Node node : tree.prompt(i)) ++times[node];
  }
  for (Node node = 0; node < tree.size(); ++node) {
    if (times[node] == 0) continue;
    ++out.distinct;
    if (times[node] == 1) ++out.seen_once;
    if (tree.parent(node) == kRoot) {
      ++out.roots;
    } else {
      ++children[tree.parent(node)];
    }
  }
  for (const std::uint64_t n : children) {
    if (n > 1) ++out.branching;
    out.widest = std::max(out.widest, n);
  }
  std::sort(times.begin(), times.end(), std::greater<>());
  std::uint64_t top = 0;
  for (std::size_t i = 0; i < out.distinct / 100; ++i) top += times[i] - 1;
  if (out.blocks > out.distinct)
    out.top_share = static_cast<double>(top) / static_cast<double>(out.blocks - out.distinct);
  count_hits(trace, tree, out);
  return out;
}

void measure_arrivals(const RequestTrace& trace, RequestSummary& out) {
  std::vector<double> gaps;
  bool any = false;
  for (const Request& request : trace.requests) {
    if (request.after_parent) {
      ++out.waiting;
      continue;
    }
    if (any) gaps.push_back(request.time_s - out.end_s);
    any = true;
    out.end_s = request.time_s;
  }
  out.gap_s = spread_of(gaps);
  if (gaps.empty()) return;
  double squares = 0;
  for (const double gap : gaps) squares += (gap - out.gap_s.mean) * (gap - out.gap_s.mean);
  if (out.gap_s.mean > 0) out.gap_cv = std::sqrt(squares / static_cast<double>(gaps.size())) / out.gap_s.mean;
}

}  // namespace

RequestSummary summarize(const RequestTrace& trace) {
  RequestSummary out;
  out.requests = trace.requests.size();
  out.sessions = trace.sessions.size();
  for (const std::string& category : trace.categories) out.categories.emplace_back(category, 0);
  std::vector<double> prompt, generated;
  for (const Request& request : trace.requests) {
    out.prompt_tokens += request.prompt_tokens;
    out.generated_tokens += request.generated_tokens;
    prompt.push_back(request.prompt_tokens);
    generated.push_back(request.generated_tokens);
    if (request.parent != requests::kNone) ++out.later_turns;
    if (request.category != requests::kNone) ++out.categories[request.category].second;
  }
  out.prompt = spread_of(std::move(prompt));
  out.generated = spread_of(std::move(generated));
  measure_arrivals(trace, out);
  if (trace.has_blocks()) out.sharing = sharing_of(trace);
  return out;
}

}  // namespace kvsim::prefix
