#include "tests/validation/fragmentation.hpp"

#include <algorithm>
#include <string>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/storage.hpp"

namespace kvsim::cost {
namespace {

/// Slot-steps: slots summed over the decode steps of a request.
struct Spans {
  double used = 0, reserved = 0, internal = 0;
};

/// Returns the sum of ceil(i / page) over i = 1 .. n.
double pages_summed(std::uint64_t n, std::uint64_t page) {
  const auto full = static_cast<double>(n / page), rest = static_cast<double>(n % page);
  return static_cast<double>(page) * full * (full + 1) / 2 + rest * (full + 1);
}

/// Slot-steps that pages reserve while a request grows from prompt + 1 to its final length, and those of them
/// that no token ever takes: behind the end of the sequence, while the last page is in use.
Spans paged_spans(const Request& request, std::uint64_t final_tokens, std::uint64_t page, double used) {
  const double reserved =
      static_cast<double>(page) * (pages_summed(final_tokens, page) - pages_summed(request.prompt, page));
  const std::uint64_t pages = pages_of(final_tokens, page);
  const std::uint64_t last_begins = (pages - 1) * page;
  const std::uint64_t steps = std::min(request.generated, final_tokens - last_begins);
  const double internal = static_cast<double>(steps) * static_cast<double>(pages * page - final_tokens);
  return {used, reserved - used - internal, internal};
}

Spans spans_of(Allocator allocator, const Request& request, std::uint64_t max_tokens, std::uint64_t page) {
  const std::uint64_t final_tokens = checked_sum("a request", request.prompt, request.generated);
  const auto generated = static_cast<double>(request.generated);
  const double used = generated * static_cast<double>(request.prompt) + generated * (generated + 1) / 2;
  if (allocator == Allocator::paged) return paged_spans(request, final_tokens, page, used);
  std::uint64_t block = final_tokens;
  if (allocator == Allocator::longest) block = max_tokens;
  if (allocator == Allocator::buddy) block = power_of_two(final_tokens);
  return {used, generated * static_cast<double>(final_tokens) - used,
          generated * static_cast<double>(block - final_tokens)};
}

}  // namespace

Fragmentation fragmentation(Allocator allocator, std::span<const Request> requests, std::uint64_t max_tokens,
                            std::uint64_t page) {
  if (allocator == Allocator::paged) pages_of(0, page);  // throws for one of no tokens
  Spans sum;
  for (const Request& request : requests) {
    if (allocator == Allocator::longest &&
        (request.prompt > max_tokens || request.generated > max_tokens - request.prompt)) {
      usage_error("a request of " + std::to_string(request.prompt) + " + " +
                      std::to_string(request.generated) + " tokens is longer than " +
                      std::to_string(max_tokens),
                  "max_tokens");
    }
    const Spans spans = spans_of(allocator, request, max_tokens, page);
    sum.used += spans.used;
    sum.reserved += spans.reserved;
    sum.internal += spans.internal;
  }
  const double all = sum.used + sum.reserved + sum.internal;
  if (all == 0) usage_error("no request generates anything", "requests");
  return {sum.used / all, sum.reserved / all, sum.internal / all};
}

}  // namespace kvsim::cost
