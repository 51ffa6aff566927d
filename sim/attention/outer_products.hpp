#pragma once
/// Sums of outer products: what attention outputs are made of.
#include <cstddef>
#include <span>

#include "sim/attention/product_path.hpp"

namespace kvsim::sim {

/// Sets out[r * n_cols + c] to the sum over i of a[i][r] * b[i][c], for r < n_rows and c < n_cols: in float,
/// in order of i, from 0, by fused multiply-adds; numbers and sums below 2^-126 in magnitude are 0 on x86.
/// `a` and `b` are as long. The bits are the same on every path; `pairs` is `wide` here.
void sum_outer_products(std::span<const float* const> a, std::size_t n_rows, std::span<const float* const> b,
                        std::size_t n_cols, float* out, ProductPath path = fastest_of_floats());

}  // namespace kvsim::sim
