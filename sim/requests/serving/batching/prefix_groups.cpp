#include "sim/requests/serving/batching/prefix_groups.hpp"

#include <algorithm>
#include <optional>

namespace kvsim::serving {
namespace {

using prefix::kRoot;
using prefix::Node;
using prefix::PrefixTree;
using requests::Request;
using requests::RequestTrace;

/// Nodes where prompts end or part: the others are inside of a run of blocks that is shared as a whole.
/// Number 0 is the root; parents come before children.
class Branches {
 public:
  struct Branch {
    std::uint32_t parent = 0;
    std::uint32_t level = 0;   ///< branches above it
    std::uint64_t tokens = 0;  ///< from the root on
    std::uint64_t visits = 0;  ///< requests that pass it or end there
    std::vector<std::uint32_t> ending{};
  };

  Branches(const RequestTrace& trace, const PrefixTree& tree)
      : visits_(tree.size(), 0), tokens_(tree.size(), 0) {
    measure(trace, tree);
    std::vector<bool> parts(tree.size(), false);
    std::vector<Node> only_child(tree.size(), kRoot);
    for (Node node = 0; node < tree.size(); ++node) {
      if (visits_[node] == 0) continue;  // of generated tokens alone
      const Node parent = tree.parent(node);
      if (parent == kRoot) continue;
      if (only_child[parent] == kRoot)
        only_child[parent] = node;
      else
        parts[parent] = true;
    }
    for (std::uint32_t i = 0; i < tree.requests(); ++i)
      if (const auto prompt = tree.prompt(i); !prompt.empty()) parts[prompt.back()] = true;
    branches_.emplace_back();
    std::vector<std::uint32_t> number(tree.size(), 0), above(tree.size(), 0);
    for (Node node = 0; node < tree.size(); ++node) {
      const Node parent = tree.parent(node);
      above[node] = parent == kRoot ? 0 : number[parent] != 0 ? number[parent] : above[parent];
      if (!parts[node]) continue;
      number[node] = static_cast<std::uint32_t>(branches_.size());
      branches_.push_back({above[node], branches_[above[node]].level + 1, tokens_[node], visits_[node], {}});
    }
    for (std::uint32_t i = 0; i < tree.requests(); ++i) {
      const auto prompt = tree.prompt(i);
      branches_[prompt.empty() ? 0 : number[prompt.back()]].ending.push_back(i);
    }
  }

  const std::vector<Branch>& all() const { return branches_; }
  std::uint64_t tree_saving() const { return tree_saving_; }

 private:
  void measure(const RequestTrace& trace, const PrefixTree& tree) {
    const std::uint64_t block = trace.block_tokens;
    std::vector<std::uint64_t> own(tree.size(), block);
    for (std::uint32_t i = 0; i < tree.requests(); ++i) {
      const auto prompt = tree.prompt(i);
      for (const Node node : prompt) ++visits_[node];
      if (prompt.empty()) continue;
      const std::uint64_t before = (prompt.size() - 1) * block;
      own[prompt.back()] =
          std::min<std::uint64_t>(own[prompt.back()], trace.requests[i].prompt_tokens - before);
    }
    for (Node node = 0; node < tree.size(); ++node) {
      const Node parent = tree.parent(node);
      tokens_[node] = (parent == kRoot ? 0 : tokens_[parent]) + own[node];
      if (visits_[node] > 1) tree_saving_ += (visits_[node] - 1) * own[node];
    }
  }

  std::vector<std::uint64_t> visits_, tokens_;
  std::vector<Branch> branches_{};
  std::uint64_t tree_saving_ = 0;
};

/// Best savings below each branch, given which of the branches above it is the nearest prefix of a group.
class Savings {
 public:
  explicit Savings(const std::vector<Branches::Branch>& branches)
      : branches_(branches), given_(branches.size()), opens_(branches.size()) {
    std::vector<std::vector<std::int64_t>> below(branches.size());  // sums over children
    for (std::size_t i = 0; i < branches.size(); ++i) below[i].resize(branches[i].level + 1, 0);
    for (std::size_t i = branches.size(); i-- > 1;) {
      const Branches::Branch& branch = branches[i];
      const auto ending = static_cast<std::int64_t>(branch.ending.size());
      const auto tokens = static_cast<std::int64_t>(branch.tokens);
      const std::int64_t open = ending * tokens + below[i][branch.level] - tokens;
      given_[i].resize(branch.level);
      opens_[i].resize(branch.level);
      std::uint32_t above = branch.parent;
      for (std::uint32_t level = branch.level; level-- > 0; above = branches[above].parent) {
        const std::int64_t closed =
            ending * static_cast<std::int64_t>(branches[above].tokens) + below[i][level];
        opens_[i][level] = open > closed;
        given_[i][level] = std::max(open, closed);
      }
      for (std::uint32_t level = 0; level < branch.level; ++level)
        below[branch.parent][level] += given_[i][level];
      below[i].clear();
      below[i].shrink_to_fit();
    }
    total_ = below[0][0];
  }

  std::uint64_t total() const { return static_cast<std::uint64_t>(total_); }

  /// The branch that is each branch's prefix.
  std::vector<std::uint32_t> prefixes() const {
    std::vector<std::uint32_t> out(branches_.size(), 0);
    for (std::uint32_t i = 1; i < branches_.size(); ++i) {
      const std::uint32_t above = out[branches_[i].parent];
      out[i] = opens_[i][branches_[above].level] ? i : above;
    }
    return out;
  }

 private:
  const std::vector<Branches::Branch>& branches_;
  std::vector<std::vector<std::int64_t>> given_;  ///< by the level of the nearest prefix
  std::vector<std::vector<bool>> opens_;
  std::int64_t total_ = 0;
};

std::uint64_t first_level_saving(const std::vector<Branches::Branch>& branches) {
  std::uint64_t saved = 0;
  for (const Branches::Branch& branch : branches)
    if (branch.level == 1 && branch.visits > 1) saved += (branch.visits - 1) * branch.tokens;
  return saved;
}

bool generates_more(const PrefixGroup& a, const PrefixGroup& b) {
  const double left = static_cast<double>(a.generated_tokens) * static_cast<double>(b.computed_tokens);
  const double right = static_cast<double>(b.generated_tokens) * static_cast<double>(a.computed_tokens);
  return left != right ? left > right : a.requests.front() < b.requests.front();
}

}  // namespace

PrefixGroups prefix_groups(const RequestTrace& trace, const PrefixTree& tree) {
  const Branches branches(trace, tree);
  const Savings savings(branches.all());
  const std::vector<std::uint32_t> prefixes = savings.prefixes();
  PrefixGroups out;
  out.saved_tokens = savings.total();
  out.tree_saving = branches.tree_saving();
  out.first_level_saving = first_level_saving(branches.all());
  std::vector<std::optional<std::size_t>> group_of(prefixes.size());
  const auto add = [&](PrefixGroup& group, std::uint32_t i) {
    const Request& request = trace.requests[i];
    group.requests.push_back(i);
    group.computed_tokens += request.prompt_tokens - (group.requests.size() > 1 ? group.prefix_tokens : 0);
    group.generated_tokens += request.generated_tokens;
    out.prompt_tokens += request.prompt_tokens;
  };
  for (std::uint32_t branch = 0; branch < prefixes.size(); ++branch)
    for (const std::uint32_t request : branches.all()[branch].ending) {
      const std::uint32_t prefix = prefixes[branch];
      if (prefix == 0) {  // a group of its own
        out.groups.emplace_back();
        add(out.groups.back(), request);
        continue;
      }
      if (!group_of[prefix]) {
        group_of[prefix] = out.groups.size();
        out.groups.emplace_back().prefix_tokens = branches.all()[prefix].tokens;
      }
      add(out.groups[*group_of[prefix]], request);
    }
  for (PrefixGroup& group : out.groups) std::sort(group.requests.begin(), group.requests.end());
  std::sort(out.groups.begin(), out.groups.end(), generates_more);
  return out;
}

}  // namespace kvsim::serving
