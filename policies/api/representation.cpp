#include "policies/api/representation.hpp"

namespace kvsim::policy {

Ledger& Ledger::operator+=(const Ledger& other) {
  exact += other.exact;
  codes += other.codes;
  parameters += other.parameters;
  outliers += other.outliers;
  indices += other.indices;
  tables += other.tables;
  shared += other.shared;
  host += other.host;
  return *this;
}

Ledger exact_ledger(const StorageShape& shape, std::uint64_t tokens) {
  return {.exact = tokens * shape.n_lanes * (shape.key_dim + shape.value_dim) * shape.element_bits};
}

}  // namespace kvsim::policy
