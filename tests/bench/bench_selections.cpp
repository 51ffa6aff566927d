// Compares a cell whose queries read a part of what is stored with the same cell that reads everything, and
// making an index of a prompt with copying its keys.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "policies/builtin.hpp"
#include "tests/bench/paired.hpp"
#include "tests/bench/replay_cells.hpp"

using namespace kvsim;
using namespace kvsim::bench;

namespace {

constexpr std::size_t kTokens = 32768, kDim = 128;
const std::vector<std::string> kSelections = {"quest(read=1024,dense=0)", "sparq(read=1024)",
                                              "top_tokens(read=1024)"};
const std::vector<std::string> kIndexes = {"quest(read=1024,dense=0)", "double_sparsity(read=1024)"};
/// Those that take seconds to make, by libraries (graph, ivf) or by products with every query (query_graph).
const std::vector<std::string> kSlowIndexes = {"pqcache(read=1024)", "retrieval(index=ivf)",
                                               "retrieval(index=graph)",
                                               "retrieval(index=query_graph,queries=4096)"};

/// The keys and values of one lane, Gaussian numbers.
class Lane final : public policy::Prompt {
 public:
  Lane() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& x : keys_) x = normal(random);
  }
  std::size_t length() const override { return kTokens; }
  MatrixView keys(int) const override { return {keys_.data(), kTokens, kDim, kDim}; }
  MatrixView values(int) const override { return keys(0); }
  MatrixView queries(int) const override { return keys(0); }
  Rotary rotary() const override { return {.inv_freq = inv_freq_}; }
  std::span<const float> numbers() const { return keys_; }

 private:
  std::vector<float> keys_ = std::vector<float>(kTokens * kDim);
  std::vector<float> inv_freq_ = std::vector<float>(kDim / 2, 0.01F);
};

/// One index of 32,768 keys against one copy of them.
void index(const std::string& selection, const Lane& lane, int pairs) {
  policy::CacheUnit unit;
  unit.layer = 5;
  unit.n_layers = 32;
  unit.head_dim = unit.value_dim = kDim;
  const policy::Composition composition = policy::parse_composition("full+" + selection, policy::builtin());
  const auto made = composition.selection->make_selection(unit);
  made->finish_prompt(lane);
  std::vector<policy::Position> positions(kTokens);
  for (std::size_t t = 0; t < kTokens; ++t) positions[t] = static_cast<policy::Position>(t);
  const std::vector<policy::LaneRows> rows{{.keys = lane.keys(0), .values = lane.values(0)}};
  std::vector<float> copy(lane.numbers().size());
  const Paired result = paired(
      [&] {
        made->selector()->begin(lane, {positions, rows});
      },
      [&] { std::memcpy(copy.data(), lane.numbers().data(), lane.numbers().size_bytes()); }, pairs);
  report((selection + ": index of 32,768 keys / copying them as floats").c_str(), result);
  std::printf("  %.2f s, %.2f GB/s of floats\n", result.candidate_s,
              static_cast<double>(lane.numbers().size_bytes()) / result.candidate_s * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const trace::MemoryTrace trace = make(4, 4096);
  for (const std::string& selection : kSelections)
    report(("full+" + selection + " / full").c_str(),
           paired([&] { run(trace, study({"full+" + selection}, "100%", 1)); },
                  [&] { run(trace, study({"full"}, "100%", 1)); }, pairs));
  for (const std::string& selection : kSelections)
    report(("h2o+" + selection + " / h2o, 50%").c_str(),
           paired([&] { run(trace, study({"h2o+" + selection}, "50%", 1)); },
                  [&] { run(trace, study({"h2o"}, "50%", 1)); }, pairs));
  const Lane lane;
  for (const std::string& selection : kIndexes) index(selection, lane, pairs);
  for (const std::string& selection : kSlowIndexes) index(selection, lane, 1);
  return 0;
}
