#pragma once
/// The random draws of one prompt. Every draw is a function of seed, kind, index of the prompt and the name
/// of the draw, so that no prompt depends on how many others are made.
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvsim::workload {

/// Examples before a prompt.
inline constexpr std::uint64_t kMaxExamples = 4;

class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view kind, std::uint64_t index);

  /// Uniform in [0, 1).
  double uniform(std::string_view what, std::uint64_t i = 0) const;
  /// Uniform in [0, n); n below 2^53.
  std::uint64_t below(std::uint64_t n, std::string_view what, std::uint64_t i = 0) const;
  /// 0 ... n - 1 in random order.
  std::vector<std::uint64_t> order(std::uint64_t n, std::string_view what) const;
  /// `n` different elements of `pool`, which has at least `n`. The prompt and its examples have different
  /// ones, or all in different orders; throws Error(usage) when the pool is too small for that.
  template <class T>
  std::vector<T> sample(const std::vector<T>& pool, std::uint64_t n, std::string_view what) const {
    std::vector<T> chosen;
    for (const std::uint64_t place : places(pool.size(), n, what)) chosen.push_back(pool[place]);
    return chosen;
  }
  /// The depth of the prompt's answer in its context, in [0, 1): uniform for one prompt, and spread evenly
  /// over prompts 0, 1, 2, ... of a seed (multiples of the golden ratio).
  double depth() const;
  /// The draws of what is the same in several prompts of a seed, by its number.
  Draws shared(std::uint64_t number) const;
  /// The draws of an example before the prompt, 0 ... kMaxExamples - 1.
  Draws example(std::uint64_t number) const;

 private:
  std::vector<std::uint64_t> places(std::uint64_t pool, std::uint64_t n, std::string_view what) const;

  std::uint64_t first_key_, key_, index_;
  std::uint64_t samples_key_,
      group_ = 0;  // of sample(): an example draws from what the prompt's order leaves
};

}  // namespace kvsim::workload
