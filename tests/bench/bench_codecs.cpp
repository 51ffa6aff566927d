// Compares a cell whose numbers are stored in fewer bits with the same cell as it comes, and coding what is
// kept of a prompt with copying it.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "tests/bench/paired.hpp"
#include "tests/bench/replay_cells.hpp"

using namespace kvsim;
using namespace kvsim::bench;

namespace {

constexpr std::size_t kTokens = 4096, kDim = 128;
const std::vector<std::string> kCodecs = {"scalar(bits=4)",
                                          "kivi(bits=4)",
                                          "kivi",
                                          "fp8",
                                          "q4_0",
                                          "turboquant(bits=4)",
                                          "turboquant(bits=4,rotation=hadamard)"};

/// One lane of Gaussian numbers, all of it kept.
class Lane final : public policy::Prompt {
 public:
  Lane() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& x : numbers_) x = normal(random);
  }
  std::size_t length() const override { return kTokens; }
  MatrixView keys(int) const override { return {numbers_.data(), kTokens, kDim, kDim}; }
  MatrixView values(int) const override { return {numbers_.data() + kTokens * kDim, kTokens, kDim, kDim}; }

  policy::CacheRows rows() const {
    policy::CacheRows out({1, kDim, kDim, 16}, kTokens, kTokens);
    for (std::size_t t = 0; t < kTokens; ++t)
      out.join({}, static_cast<policy::Position>(t), {keys(0).row(t).data(), 1, kDim, kDim},
               {values(0).row(t).data(), 1, kDim, kDim});
    return out;
  }
  std::span<const float> numbers() const { return numbers_; }

 private:
  std::vector<float> numbers_ = std::vector<float>(2 * kTokens * kDim);
};

void encode(const std::string& codec, const Lane& lane, int pairs) {
  policy::CacheUnit unit;
  unit.head_dim = unit.value_dim = kDim;
  const policy::Composition composition = policy::parse_composition("full+" + codec, policy::builtin());
  const auto representation = composition.representation->make_representation(unit);
  representation->finish_prompt(lane);
  policy::CacheRows rows = lane.rows();
  std::vector<float> copy(lane.numbers().size());
  const Paired result =
      paired([&] { representation->codec()->begin(lane, rows); },
             [&] { std::memcpy(copy.data(), lane.numbers().data(), lane.numbers().size_bytes()); }, pairs);
  report((codec + " of 4,096 tokens / copying them as floats").c_str(), result);
  std::printf("  %.2f GB/s of floats\n",
              static_cast<double>(lane.numbers().size_bytes()) / result.candidate_s * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const trace::MemoryTrace trace = make(1, kTokens);
  for (const std::string& codec : kCodecs) {
    const std::string stored = "h2o+" + codec;
    report((stored + " / h2o, 20%").c_str(), paired([&] { run(trace, study({stored}, "20%", 1)); },
                                                    [&] { run(trace, study({"h2o"}, "20%", 1)); }, pairs));
  }
  const std::string eight = "5%,10%,15%,20%,25%,30%,40%,50%";
  report("h2o+kivi(bits=4) / h2o, 8 budgets",
         paired([&] { run(trace, study({"h2o+kivi(bits=4)"}, eight, 1)); },
                [&] { run(trace, study({"h2o"}, eight, 1)); }, pairs));
  const Lane lane;
  for (const std::string& codec : kCodecs) encode(codec, lane, pairs);
  return 0;
}
