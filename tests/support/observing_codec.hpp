#pragma once
/// A representation that halves keys, adds to logits and writes down what it observes, for tests of its
/// feeders.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::test {

/// One step of a lane: what its queries read, and the weights that the codec was shown.
struct ObservedStep {
  std::vector<policy::Position> positions{};
  std::vector<std::vector<float>> keys{}, weights{};  ///< [slots][dim], [queries][slots]
  std::vector<float> biases{};
};

/// By layer, head and position of the step's token.
struct Observed {
  std::mutex mutex{};
  std::map<std::tuple<int, int, policy::Position>, ObservedStep> steps{};
};

class ObservingCodec final : public policy::Codec {
 public:
  ObservingCodec(const policy::CacheUnit& unit, Observed& observed) : unit_(unit), observed_(&observed) {}

  void begin(const policy::Prompt& /*prompt*/, policy::CacheRows& rows) override {
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) change(slot, rows);
  }
  void join(std::size_t own_slot, policy::CacheRows& rows) override {
    own_ = rows.positions()[own_slot];
    change(own_slot, rows);
  }
  void observe(MatrixView weights, const policy::CacheRows& rows) override {
    const auto group = static_cast<std::size_t>(unit_.group);
    const std::lock_guard lock(observed_->mutex);
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      ObservedStep& step =
          observed_->steps[{unit_.layer, unit_.first_kv_head + static_cast<int>(lane), own_}];
      step.positions.assign(rows.positions().begin(), rows.positions().end());
      step.biases.assign(rows.biases(lane).begin(), rows.biases(lane).end());
      for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
        const std::span<const float> key = rows.keys(lane).row(slot);
        step.keys.emplace_back(key.begin(), key.end());
      }
      for (std::size_t g = lane * group; g < (lane + 1) * group; ++g)
        step.weights.emplace_back(weights.row(g).begin(), weights.row(g).end());
    }
  }
  policy::Ledger ledger(const policy::CacheRows& rows) const override {
    return policy::exact_ledger(rows.shape(), rows.slots());
  }

 private:
  static void change(std::size_t slot, policy::CacheRows& rows) {
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      for (float& x : rows.key(lane, slot)) x /= 2;
      rows.bias(lane, slot) = 0.1F * static_cast<float>(rows.positions()[slot] % 7);
    }
  }

  policy::CacheUnit unit_;
  Observed* observed_;
  policy::Position own_ = 0;
};

class ObservingRepresentation final : public policy::Representation {
 public:
  ObservingRepresentation(const policy::CacheUnit& unit, Observed& observed)
      : unit_(unit), observed_(&observed) {}
  std::unique_ptr<policy::Codec> codec() const override {
    return std::make_unique<ObservingCodec>(unit_, *observed_);
  }

 private:
  policy::CacheUnit unit_;
  Observed* observed_;
};

/// `asks`: whether it needs the weights.
inline policy::PolicySpec observing_spec(Observed& observed, bool asks) {
  policy::PolicySpec spec;
  spec.name = "observing";
  spec.needs.decode_rows = asks;
  spec.rule =
      policy::RepresentationRule{.make = [&observed](const policy::Params&, const policy::CacheUnit& unit) {
        return std::make_unique<ObservingRepresentation>(unit, observed);
      }};
  return spec;
}

/// The weights of the step are the softmax of scale * q.k + bias over the slots that the token sees. `span`:
/// 0, or the window of the layer.
inline void check_observed(const ObservedStep& step, policy::Position own, std::size_t span, double scale,
                           const std::function<std::span<const float>(std::size_t g)>& query) {
  for (std::size_t g = 0; g < step.weights.size(); ++g) {
    std::vector<double> expected(step.positions.size());
    double sum = 0;
    for (std::size_t slot = 0; slot < expected.size(); ++slot) {
      if (span > 0 && static_cast<std::size_t>(own - step.positions[slot]) >= span) continue;
      double logit = static_cast<double>(step.biases[slot]);
      for (std::size_t c = 0; c < query(g).size(); ++c)
        logit += scale * static_cast<double>(query(g)[c]) * static_cast<double>(step.keys[slot][c]);
      sum += expected[slot] = std::exp(logit);
    }
    REQUIRE(step.weights[g].size() == expected.size());
    for (std::size_t slot = 0; slot < expected.size(); ++slot)
      CHECK(static_cast<double>(step.weights[g][slot]) == Approx(expected[slot] / sum).margin(1e-5));
  }
}

}  // namespace kvsim::test
