#pragma once
/// What making and reading codes costs, for the `cost` of representations. Bytes that attention reads are the
/// ledger's; counted here are operations per number, one each for a comparison, an addition, a product or a
/// quotient, a rounding, a conversion between whole numbers and floats, a look-up, and for taking a code that
/// is narrower than a byte out of its word or putting it there.
#include <cstdint>
#include <span>

#include "policies/api/cost.hpp"
#include "policies/parts/codes/scalar_code.hpp"

namespace kvsim::policy {

/// Operations for one number.
struct CodeOps {
  double make = 0, read = 0;
};

/// Of a code of numbers in groups: finding the range and rounding; converting, scaling and shifting back.
CodeOps scalar_code_ops(const ScalarCode& code);

enum class Coding {
  appending,  ///< by the kernel that appends a token to the cache, as engines do
  apart,      ///< by a kernel for the keys and one for the values, which read the numbers from memory
};

/// Cost of coding what is kept of a prompt and every generated token once, and of reading codes in attention.
/// Windows count as coded when they are filled. `every`: generated tokens that are coded at once.
Cost coding_cost(const CostShape& shape, const CodeOps& keys, const CodeOps& values, Coding coding,
                 double keys_every = 1, double values_every = 1);

// What an arithmetic coder would make of symbols, without running one.

/// Bytes of `symbols`, coded in runs of at most `run` of them by one table of probabilities: how often each
/// symbol comes in all of them. Of a run these are its symbols' -log2 of that probability, added up and
/// rounded up to whole bytes. An arithmetic coder takes no less, and at most some bits more to end a run.
std::uint64_t entropy_coded_bytes(std::span<const std::int8_t> symbols, std::size_t run);

}  // namespace kvsim::policy
