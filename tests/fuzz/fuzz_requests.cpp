// Any bytes either are a trace of requests or are refused as an input error. What is read is sound, can be
// written, and written once more is the same.
#include <algorithm>

#include "sim/base/files.hpp"
#include "sim/requests/prefix/request_summary.hpp"
#include "tests/fuzz/target.hpp"
#include "traces/requests/generated_blocks.hpp"
#include "traces/requests/like_requests.hpp"
#include "traces/requests/request_check.hpp"
#include "traces/requests/write_requests.hpp"

namespace kvsim::fuzz::fuzz_requests {
namespace {

using requests::Request;
using requests::RequestTrace;

constexpr std::uint64_t kMostText = std::uint64_t{1} << 28;

void require_sound(const RequestTrace& trace) {
  double latest = 0;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const Request& request = trace.requests[i];
    require(request.time_s >= 0, "no request arrives before the trace begins");
    require(request.parent == requests::kNone || request.parent < i, "parents come before their children");
    require(!request.after_parent || request.parent != requests::kNone, "who waits has a parent");
    if (!request.after_parent && trace.format != "kvcache-simulator") {
      require(request.time_s >= latest, "times rise");
      latest = request.time_s;
    }
    if (trace.has_blocks())
      require(trace.prompt_blocks(request).size() ==
                  requests::block_count(request.prompt_tokens, trace.block_tokens, trace.tail),
              "numbers of blocks fit the lengths");
  }
}

/// What the trace is written as.
std::string written(const RequestTrace& trace, requests::WrittenFormat format) {
  static const InputOnDisk kWritten(".written.jsonl");
  requests::write_requests(trace, kWritten.path(), {.format = format, .overwrite = true});
  return read_file(kWritten.path(), kMostText);
}

void read(std::string_view input) {
  static const InputOnDisk kFile(".requests"), kAgain(".again.jsonl");
  const std::string& path = kFile.write(input);
  for (const char* own : {"csv", "jsonl"}) {  // which no first line tells
    requests::ReadOptions options;
    options.format = own;
    accepts([&] { require_sound(requests::read_requests(path, options)); },
            {ErrorKind::input, ErrorKind::usage});
  }
  const RequestTrace trace = requests::read_requests(path);
  require_sound(trace);
  const requests::RequestCheck check = requests::check_requests(path, {}, 3);
  const bool chained = accepts([&] { prefix::summarize(trace); });
  require((check.bad_lines == 0) == chained, "a check finds what the tree of prompts refuses, and no more");
  if (!chained) return;
  RequestTrace inferred = trace;
  if (trace.has_blocks()) {
    requests::infer_generated(inferred);
    RequestTrace prompts = trace;
    requests::forget_generated(prompts);
    accepts(
        [&] {
          require(prefix::summarize(requests::like_requests(trace, 1)).sharing->all.hit_tokens ==
                      prefix::summarize(prompts).sharing->all.hit_tokens,
                  "a trace like another has its sharing");
        },
        {ErrorKind::usage});
  }
  for (const auto format : {requests::WrittenFormat::mooncake, requests::WrittenFormat::bailian}) {
    accepts(
        [&] {
          const std::string text = written(trace, format);
          const RequestTrace again = requests::read_requests(kAgain.write(text));
          require(again.requests.size() == trace.requests.size(), "all requests are written");
          require(written(again, format) == text, "a trace written is read as it was");
        },
        {ErrorKind::usage});
  }
}

const Registered kTarget({"requests", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_requests
