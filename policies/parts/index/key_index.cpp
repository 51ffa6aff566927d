#include "policies/parts/index/key_index.hpp"

#include <faiss/Clustering.h>
#include <faiss/IndexFlat.h>
#include <faiss/utils/distances.h>
#include <hnswlib/hnswlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "policies/parts/index/reading.hpp"
#include "sim/base/dot.hpp"

// Of OpenMP, which faiss is built with; its header comes with one compiler alone.
extern "C" void omp_set_num_threads(int);

namespace kvsim::policy {
namespace {

/// The keys, and the choice among those that have been looked at.
class HeldKeys : public KeyIndex {
 public:
  HeldKeys(std::vector<float> keys, std::size_t dim)
      : keys_(std::move(keys)), dim_(dim), removed_(keys_.size() / dim) {}
  void remove(std::size_t key) override { removed_[key] = 1; }

 protected:
  std::size_t size() const { return removed_.size(); }
  const float* key(std::size_t i) const { return keys_.data() + i * dim_; }
  float product(std::span<const float> query, std::size_t i) const { return dot(query.data(), key(i), dim_); }

  void start() { found_.clear(); }
  void look(std::size_t i, float score, std::vector<char>& looked_at) {
    looked_at[i] = 1;
    if (removed_[i] == 0)
      found_.emplace_back(std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, i);
  }
  void finish(std::size_t count, std::vector<std::size_t>& out) {
    if (count < found_.size()) {
      std::nth_element(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(count), found_.end(),
                       std::greater{});
      found_.resize(count);
    }
    out.clear();
    for (const auto& [score, i] : found_) out.push_back(i);
  }

 private:
  std::vector<float> keys_;
  std::size_t dim_;
  std::vector<char> removed_;
  std::vector<std::pair<float, std::size_t>> found_;
};

class FlatIndex final : public HeldKeys {
 public:
  using HeldKeys::HeldKeys;
  void search(std::span<const float> query, std::size_t count, std::vector<char>& looked_at,
              std::vector<std::size_t>& out) override {
    start();
    for (std::size_t i = 0; i < size(); ++i) look(i, product(query, i), looked_at);
    finish(count, out);
  }
  std::uint64_t bits() const override { return 0; }
};

/// faiss clusters the keys and finds the centres next to a query; the lists are ours.
class ListIndex final : public HeldKeys {
 public:
  ListIndex(const IndexRule& rule, std::vector<float> keys, std::size_t dim, std::uint64_t seed)
      : HeldKeys(std::move(keys), dim),
        bits_(rule.bits(size(), dim)),
        centres_(static_cast<faiss::Index::idx_t>(dim)),
        lists_(rule.lists_of(size())),
        probes_(rule.probes_of(size())) {
    // Units run in parallel, and libraries of linear algebra do not agree on the last bit.
    omp_set_num_threads(1);
    static std::once_flag once;
    std::call_once(once, [] { faiss::distance_compute_blas_threshold = std::numeric_limits<int>::max(); });
    faiss::ClusteringParameters how;
    how.niter = 10;
    how.min_points_per_centroid = 1;  // faiss prints a warning where there are fewer
    how.spherical = true;             // as its IVF index has it for products
    how.seed = static_cast<int>(seed % 1000000007);
    const auto n = static_cast<faiss::Index::idx_t>(size());
    faiss::Clustering clustering(static_cast<int>(dim), static_cast<int>(lists_.size()), how);
    clustering.train(n, key(0), centres_);
    std::vector<float> products(size());
    std::vector<faiss::Index::idx_t> nearest(size());
    centres_.search(n, key(0), 1, products.data(), nearest.data());
    for (std::size_t i = 0; i < size(); ++i)
      lists_[static_cast<std::size_t>(std::max<faiss::Index::idx_t>(nearest[i], 0))].push_back(i);
  }

  void search(std::span<const float> query, std::size_t count, std::vector<char>& looked_at,
              std::vector<std::size_t>& out) override {
    omp_set_num_threads(1);
    start();
    products_.resize(probes_);
    nearest_.resize(probes_);
    centres_.search(1, query.data(), static_cast<faiss::Index::idx_t>(probes_), products_.data(),
                    nearest_.data());
    for (const faiss::Index::idx_t list : nearest_)
      if (list >= 0)
        for (const std::size_t i : lists_[static_cast<std::size_t>(list)])
          look(i, product(query, i), looked_at);
    finish(count, out);
  }
  std::uint64_t bits() const override { return bits_; }

 private:
  std::uint64_t bits_;
  faiss::IndexFlatIP centres_;
  std::vector<std::vector<std::size_t>> lists_;
  std::size_t probes_;
  std::vector<float> products_;
  std::vector<faiss::Index::idx_t> nearest_;
};

/// hnswlib's graph, whose distance marks the keys that a search looks at.
class NearGraph final : public KeyIndex {
 public:
  NearGraph(const IndexRule& rule, const std::vector<float>& keys, std::size_t dim, std::uint64_t seed)
      : bits_(rule.bits(keys.size() / dim, dim)),
        beam_(rule.beam),
        space_(dim),
        graph_(&space_, keys.size() / dim, rule.degree, kConstruction, seed),
        removed_(keys.size() / dim) {
    for (std::size_t i = 0; i < removed_.size(); ++i) graph_.addPoint(keys.data() + i * dim, i);
  }

  void search(std::span<const float> query, std::size_t count, std::vector<char>& looked_at,
              std::vector<std::size_t>& out) override {
    out.clear();
    graph_.setEf(std::max(beam_, count));
    space_.watch(graph_, &looked_at);
    auto found = graph_.searchKnn(query.data(), count);
    space_.watch(graph_, nullptr);
    for (; !found.empty(); found.pop()) out.push_back(found.top().second);
  }
  void remove(std::size_t key) override {
    if (removed_[key] == 0) graph_.markDelete(key);
    removed_[key] = 1;
  }
  std::uint64_t bits() const override { return bits_; }

 private:
  using Graph = hnswlib::HierarchicalNSW<float>;
  static constexpr std::size_t kConstruction = 200;  ///< hnswlib's default

  class Space final : public hnswlib::SpaceInterface<float> {
   public:
    explicit Space(std::size_t dim) : watched_{dim, nullptr, nullptr} {}
    std::size_t get_data_size() override { return watched_.dim * sizeof(float); }
    hnswlib::DISTFUNC<float> get_dist_func() override { return distance; }
    void* get_dist_func_param() override { return &watched_; }
    void watch(const Graph& graph, std::vector<char>* looked_at) {
      watched_.graph = &graph;
      watched_.looked_at = looked_at;
    }

   private:
    struct Watched {
      std::size_t dim;
      const Graph* graph;
      std::vector<char>* looked_at;
    };
    static float distance(const void* query, const void* key, const void* with) {
      const Watched& watched = *static_cast<const Watched*>(with);
      if (watched.looked_at) {
        const Graph& graph = *watched.graph;
        const auto offset = static_cast<std::size_t>(static_cast<const char*>(key) -
                                                     graph.data_level0_memory_ - graph.offsetData_);
        // Keys are inserted in order, so that the graph's numbers are ours.
        (*watched.looked_at)[offset / graph.size_data_per_element_] = 1;
      }
      return -dot(static_cast<const float*>(query), static_cast<const float*>(key), watched.dim);
    }
    Watched watched_;
  };

  std::uint64_t bits_;
  std::size_t beam_;
  Space space_;
  Graph graph_;
  std::vector<char> removed_;
};

class QueryGraph final : public HeldKeys {
 public:
  QueryGraph(const IndexRule& rule, std::vector<float> keys, std::size_t dim,
             std::span<const MatrixView> queries)
      : HeldKeys(std::move(keys), dim), beam_(rule.beam), links_(size()), seen_(size()) {
    // The nearest key of a query is linked with the next ones, both ways. A key keeps the links that most
    // queries make, of equals those with later keys.
    std::vector<std::uint64_t> made;
    std::vector<std::size_t> nearest, firsts(size());
    std::vector<float> scores(size());
    const DotRows products(key(0), dim, size(), dim);
    for (const MatrixView& rows : queries)
      for (std::size_t row = 0; row < rows.rows; ++row) {
        products.products(rows.row(row).data(), size(), scores.data());
        highest_scores(scores, rule.neighbours, nearest);
        const std::size_t first = *std::ranges::max_element(nearest, [&](std::size_t a, std::size_t b) {
          return scores[a] != scores[b] ? scores[a] < scores[b] : a < b;
        });
        ++firsts[first];
        for (const std::size_t other : nearest) {
          if (other == first) continue;
          made.push_back(std::uint64_t{first} << 32 | other);
          made.push_back(std::uint64_t{other} << 32 | first);
        }
      }
    std::ranges::sort(made);
    std::vector<std::pair<std::size_t, std::size_t>> counted;  // how often, with which key
    for (std::size_t i = 0, next = 0; i < size(); ++i) {
      counted.clear();
      for (; next < made.size() && made[next] >> 32 == i; ++next) {
        const std::size_t other = made[next] & 0xffffffff;
        if (counted.empty() || counted.back().second != other) counted.emplace_back(0, other);
        ++counted.back().first;
      }
      std::ranges::sort(counted, std::greater{});
      for (std::size_t l = 0; l < std::min(rule.degree, counted.size()); ++l)
        links_[i].push_back(counted[l].second);
      // Its neighbours in the text, so that every key is reached.
      for (const std::size_t other : {i - 1, i + 1})
        if (other < size() && std::ranges::find(links_[i], other) == links_[i].end())
          links_[i].push_back(other);
    }
    for (std::size_t i = 0; i < size(); ++i)
      if (firsts[i] >= firsts[entry_]) entry_ = i;
  }

  void search(std::span<const float> query, std::size_t count, std::vector<char>& looked_at,
              std::vector<std::size_t>& out) override {
    start();
    std::ranges::fill(seen_, 0);
    const std::size_t beam = std::max(beam_, count);
    open_.clear();  // a heap with the best on top
    best_.clear();  // a heap with the worst on top
    const auto visit = [&](std::size_t i) {
      if (seen_[i] != 0) return;
      seen_[i] = 1;
      float score = product(query, i);
      if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
      look(i, score, looked_at);
      const Scored scored{score, i};
      if (best_.size() == beam) {
        if (scored < best_.front()) return;
        std::ranges::pop_heap(best_, std::greater{});
        best_.pop_back();
      }
      best_.push_back(scored);
      std::ranges::push_heap(best_, std::greater{});
      open_.push_back(scored);
      std::ranges::push_heap(open_);
    };
    visit(entry_);
    while (!open_.empty()) {
      const Scored next = open_.front();
      if (best_.size() == beam && next < best_.front()) break;
      std::ranges::pop_heap(open_);
      open_.pop_back();
      for (const std::size_t other : links_[next.second]) visit(other);
    }
    finish(count, out);
  }

  std::uint64_t bits() const override {
    std::uint64_t links = 0;
    for (const auto& of : links_) links += of.size();
    return 32 * links;
  }

 private:
  std::size_t beam_, entry_ = 0;
  using Scored = std::pair<float, std::size_t>;
  std::vector<std::vector<std::size_t>> links_;
  std::vector<char> seen_;
  std::vector<Scored> open_, best_;
};

}  // namespace

std::size_t IndexRule::lists_of(std::size_t keys) const {
  // At least eight keys per list, unless there are fewer.
  return std::clamp<std::size_t>(keys / 8, 1, lists);
}

std::size_t IndexRule::probes_of(std::size_t keys) const {
  return static_cast<std::size_t>(probes.of(lists_of(keys)));
}

std::uint64_t IndexRule::bits(std::size_t keys, std::size_t dim) const {
  switch (kind) {
    case IndexKind::flat:
      return 0;
    case IndexKind::ivf:
      return 16 * lists_of(keys) * dim + 32 * keys;
    case IndexKind::graph:
      return 32 * 2 * degree * keys;
    case IndexKind::query_graph:
      return 32 * (degree + 2) * keys;
  }
  return 0;
}

std::size_t IndexRule::looked_at(std::size_t keys, std::size_t count) const {
  const std::size_t steps = std::max(beam, count);
  switch (kind) {
    case IndexKind::flat:
      return keys;
    case IndexKind::ivf:
      return (keys * probes_of(keys) + lists_of(keys) - 1) / lists_of(keys);
    case IndexKind::graph:
      return std::min(keys, steps * 2 * degree);
    case IndexKind::query_graph:
      return std::min(keys, steps * (degree + 2));
  }
  return keys;
}

std::uint64_t IndexRule::search_bits(std::size_t keys, std::size_t dim) const {
  return kind == IndexKind::ivf ? 16 * lists_of(keys) * dim : 0;
}

std::unique_ptr<KeyIndex> make_key_index(const IndexRule& rule, std::vector<float> keys, std::size_t dim,
                                         std::span<const MatrixView> queries, std::uint64_t seed) {
  for (float& x : keys)
    if (!std::isfinite(x)) x = 0;
  switch (rule.kind) {
    case IndexKind::ivf:
      return std::make_unique<ListIndex>(rule, std::move(keys), dim, seed);
    case IndexKind::graph:
      return std::make_unique<NearGraph>(rule, keys, dim, seed);
    case IndexKind::query_graph:
      return std::make_unique<QueryGraph>(rule, std::move(keys), dim, queries);
    case IndexKind::flat:
      break;
  }
  return std::make_unique<FlatIndex>(std::move(keys), dim);
}

}  // namespace kvsim::policy
