#pragma once
/// What an arithmetic coder would make of symbols, without running one.
#include <cstdint>
#include <span>

namespace kvsim::policy {

/// Bytes of `symbols`, coded in runs of at most `run` of them by one table of probabilities: how often each
/// symbol comes in all of them. Of a run these are its symbols' -log2 of that probability, added up and
/// rounded up to whole bytes. An arithmetic coder takes no less, and at most some bits more to end a run.
std::uint64_t entropy_coded_bytes(std::span<const std::int8_t> symbols, std::size_t run);

}  // namespace kvsim::policy
