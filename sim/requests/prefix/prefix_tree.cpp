#include "sim/requests/prefix/prefix_tree.hpp"

#include <algorithm>
#include <boost/functional/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::prefix {
namespace {

using requests::BlockId;
using requests::Hashing;
using requests::Request;
using requests::RequestTrace;

std::string place(const RequestTrace& trace, const Request& request) {
  if (request.line > 0) return "line " + std::to_string(request.line);
  return "request " + std::to_string(&request - trace.requests.data());
}

class NodeNumbers {
 public:
  NodeNumbers(const RequestTrace& trace, std::vector<Node>& parents, std::vector<std::uint32_t>& depths)
      : trace_(trace), parents_(parents), depths_(depths) {}

  void append(const Request& request, std::span<const BlockId> ids, std::vector<Node>& path) {
    Node parent = kRoot;
    for (const BlockId id : ids) {
      parent = trace_.hashing == Hashing::chained ? chained(request, parent, id) : behind(parent, id);
      path.push_back(parent);
    }
  }

 private:
  Node chained(const Request& request, Node parent, BlockId id) {
    const auto [at, fresh] = chained_.try_emplace(id, Node{});
    if (fresh) return at->second = add(parent);
    if (parents_[at->second] != parent)
      input_error("block " + std::to_string(id) + " stands behind another prefix than before",
                  place(trace_, request),
                  "a chained id names a block and all before it; if ids name the blocks' tokens alone, say "
                  "--hash content");
    return at->second;
  }

  Node behind(Node parent, BlockId id) {
    const auto [at, fresh] = content_.try_emplace({parent, id}, Node{});
    if (fresh) at->second = add(parent);
    return at->second;
  }

  Node add(Node parent) {
    if (parents_.size() >= kRoot)
      input_error("the trace has more than 4,294,967,294 different blocks", trace_.format);
    parents_.push_back(parent);
    depths_.push_back(parent == kRoot ? 0 : depths_[parent] + 1);
    return static_cast<Node>(parents_.size() - 1);
  }

  const RequestTrace& trace_;
  std::vector<Node>& parents_;
  std::vector<std::uint32_t>& depths_;
  boost::unordered_flat_map<BlockId, Node> chained_;
  boost::unordered_flat_map<std::pair<Node, BlockId>, Node, boost::hash<std::pair<Node, BlockId>>> content_;
};

}  // namespace

PrefixTree::PrefixTree(const RequestTrace& trace) {
  if (!trace.has_blocks())
    usage_error("a trace of format " + trace.format + " does not say which prompts share tokens", {},
                "such a trace drives queues (kvsim requests serve), not prefix caches");
  NodeNumbers numbers(trace, parents_, depths_);
  prompts_.reserve(trace.requests.size() + 1);
  path_nodes_.reserve(trace.blocks.size());
  prompts_.push_back(0);
  const bool finals = trace.generated != requests::Generated::none;
  if (finals) finals_.push_back(0);
  for (const Request& request : trace.requests) {
    numbers.append(request, trace.prompt_blocks(request), path_nodes_);
    prompts_.push_back(path_nodes_.size());
    if (!finals) continue;
    if (request.n_final_blocks > 0) numbers.append(request, trace.final_blocks(request), final_nodes_);
    finals_.push_back(final_nodes_.size());
  }
}

std::span<const Node> PrefixTree::final_path(std::size_t request) const {
  if (finals_.empty() || finals_[request] == finals_[request + 1]) return prompt(request);
  return std::span(final_nodes_).subspan(finals_[request], finals_[request + 1] - finals_[request]);
}

std::uint64_t SubtreeSample::capacity(std::uint64_t of) const {
  const std::uint64_t held = std::min(of, trunk);
  const auto rest = static_cast<std::uint64_t>(std::llround(rate * static_cast<double>(of - held)));
  return std::max<std::uint64_t>(held + rest, 1);
}

SubtreeSample sampled_subtrees(const requests::RequestTrace& trace, const PrefixTree& tree, double rate,
                               std::uint64_t seed, double popular) {
  if (!(rate > 0 && rate <= 1))
    usage_error("a sample of subtrees has a rate above 0 and at most 1", {}, "Take e.g. 0.1.");
  std::vector<std::uint32_t> requests_of(tree.size(), 0);
  for (std::size_t r = 0; r < tree.requests(); ++r)
    for (const Node node : tree.prompt(r)) ++requests_of[node];
  const double most = popular * static_cast<double>(tree.requests());
  const auto in_trunk = [&](Node node) { return requests_of[node] > most; };

  SubtreeSample out{.rate = rate};
  out.trunk = static_cast<std::uint64_t>(
      std::count_if(requests_of.begin(), requests_of.end(), [&](std::uint32_t n) { return n > most; }));
  out.trace = {.format = trace.format,
               .block_tokens = trace.block_tokens,
               .hashing = trace.hashing,
               .tail = trace.tail,
               .generated = trace.generated,
               .sessions = trace.sessions,
               .categories = trace.categories};
  std::vector<std::uint32_t> numbers(trace.requests.size(), requests::kNone);  // in the sample
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    if (trace.requests[r].after_parent)
      usage_error("requests that arrive after their parents cannot be sampled", {},
                  "Sample a trace that has the time of every arrival.");
    const std::span<const Node> prompt = tree.prompt(r);
    const auto first = std::find_if_not(prompt.begin(), prompt.end(), in_trunk);
    const std::uint64_t unit = first == prompt.end() ? combine({1, r}) : combine({0, *first});
    if (uniform01(combine({seed, unit})) >= rate) continue;
    requests::Request request = trace.requests[r];
    const auto copy = [&](std::span<const requests::BlockId> blocks) {
      const std::uint64_t at = out.trace.blocks.size();
      out.trace.blocks.insert(out.trace.blocks.end(), blocks.begin(), blocks.end());
      return at;
    };
    if (request.n_final_blocks > 0) request.first_final_block = copy(trace.final_blocks(request));
    request.first_block = copy(trace.prompt_blocks(trace.requests[r]));
    if (request.parent != requests::kNone) request.parent = numbers[request.parent];
    numbers[r] = static_cast<std::uint32_t>(out.trace.requests.size());
    out.trace.requests.push_back(request);
  }
  return out;
}

}  // namespace kvsim::prefix
