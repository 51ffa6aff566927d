#pragma once
/// A small run of one unit, made by hand or at random, and an eviction policy that a UnitDriver takes through
/// it: the prompt and every generated token, one budget at a time. The driver checks each answer against the
/// contract of policies/api/eviction.hpp.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "policies/api/eviction.hpp"

namespace kvsim::policy::test {

/// Full attention rows, queries, keys, values, output weights, token classes and surprises of one unit.
struct Run {
  CacheUnit unit;
  std::size_t prompt = 0, decode = 0;
  std::vector<std::vector<float>> rows;     ///< per query head, [length, length], causal, each row sums to 1
  std::vector<std::vector<float>> queries;  ///< per query head, [length, dim]
  std::vector<std::vector<float>> keys, values;    ///< per lane, [length, dim]
  std::vector<std::vector<float>> output_weights;  ///< per query head, [value_dim, hidden]
  std::vector<std::uint8_t> classes;               ///< [length]
  std::vector<float> surprises;                    ///< [length]
  std::vector<float> inv_freq;                     ///< of the rotation, half split; the scale is kScale
  double cap = 0;                                  ///< of logits, or 0
  std::vector<float> sinks;                        ///< per query head, or empty: there are none

  std::size_t length() const { return prompt + decode; }
  float p(int query_head, std::size_t query, std::size_t key) const {
    return rows[static_cast<std::size_t>(query_head)][query * length() + key];
  }
  float& p(int query_head, std::size_t query, std::size_t key) {
    return rows[static_cast<std::size_t>(query_head)][query * length() + key];
  }
};

inline constexpr std::size_t kHidden = 4;
inline constexpr double kScale = 0.5;  ///< on q.k

struct Shape {
  std::size_t prompt = 8, decode = 4;
  int n_lanes = 1, group = 2;
};

/// Rows of random weights, an integer in [1, levels] before normalising: few levels make many ties.
Run random_run(const Shape& shape, std::uint64_t seed, int levels = 1000000);
/// Returns a run of zeros, to be filled by hand.
Run blank_run(const Shape& shape);

struct Fed {
  std::vector<Position> kept;               ///< positions kept after the prompt, streamed or not, ascending
  std::vector<std::vector<Position>> held;  ///< positions that step s attends, ascending
};

struct Feeding {
  std::size_t block_rows = 3;  ///< rows per observed block
  bool every_row = false;      ///< also deliver rows not asked for, as when another policy shares the pass
  bool columns = false;  ///< deliver column sums of all rows first, then only the rows needed beside them
  bool last_row_again = false;  ///< oracles get the last prompt row as the first step
  /// The last prompt token comes again, with this run's key and value.
  const Run* again = nullptr;
};

/// Passes the rows that `observer` asks for, then the finished prompt: of a unit with a window what it holds.
void feed_prompt(PromptObserver& observer, const Run& run);

Fed feed(const Composition& composition, const Run& run, std::size_t budget, const Feeding& feeding = {});
/// `policy`: text of a composition of built-in policies.
Fed feed(const std::string& policy, const Run& run, std::size_t budget, const Feeding& feeding = {});

}  // namespace kvsim::policy::test
