#include "policies/parts/index/sim_hash.hpp"

#include <array>

#include "sim/base/rng.hpp"

namespace kvsim::policy {

SimHash::SimHash(std::size_t bits, std::size_t dim, std::uint64_t key) : bits_(bits), normals_(bits * dim) {
  for (std::size_t c = 0; c < dim; ++c)
    for (std::size_t b = 0; b < bits; ++b) normals_[c * bits + b] = normal(combine({key, b, c}));
}

std::uint64_t SimHash::operator()(std::span<const float> x) const {
  std::array<double, kMaxHashBits> side{};
  for (std::size_t c = 0; c < x.size(); ++c) {
    const double component = static_cast<double>(x[c]);
    const double* normals = normals_.data() + c * bits_;
    for (std::size_t b = 0; b < bits_; ++b) side[b] += component * normals[b];
  }
  std::uint64_t code = 0;
  for (std::size_t b = 0; b < bits_; ++b) code |= std::uint64_t{side[b] >= 0} << b;
  return code;
}

}  // namespace kvsim::policy
