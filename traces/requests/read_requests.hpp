#pragma once
/// Reads traces of requests in the formats in which they are published (README.md beside this file).
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/field_names.hpp"
#include "sim/base/progress.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

struct ReadOptions {
  std::string format{};              ///< one of request_formats(); empty: as the first line looks
  std::uint32_t block_tokens = 0;    ///< 0: as the trace says, or as is usual in its format
  std::optional<Hashing> hashing{};  ///< unset: as in the format
  std::optional<Tail> tail{};        ///< unset: as the numbers of ids show; all requests must be alike
  /// Unset: given where the trace says generated tokens, else none. `inferred` reads them off the next turn
  /// (traces/requests/generated_blocks.hpp).
  std::optional<Generated> generated{};
  /// Of formats csv and jsonl: time, prompt, output or session, and what the file calls it.
  FieldNames fields{};
  /// Of formats jsonl and openai: the tokens of a text, or of messages as JSON, which `where` says; empty:
  /// both are refused.
  std::function<std::vector<std::int32_t>(std::string text, bool messages, const std::string& where)>
      encode{};
  std::uint64_t limit = 0;       ///< only so many requests, the first ones; 0: all
  bool sort = false;             ///< puts requests that are not in the order of their times into it
  Progress* progress = nullptr;  ///< counts bytes of the file
};

/// Reads a file, gzip or not, standard input for "-", or the files of a folder in the order of their names.
/// Throws Error(input), with the line, for the first thing that is against a rule, and Error(usage) for
/// options that the trace cannot honour. Whether ids of chained blocks keep their prefix is looked at by
/// check_requests() and by PrefixTree, not here: it takes longer than reading.
RequestTrace read_requests(const std::string& path, const ReadOptions& options = {});

/// What the help of the command says of a format.
struct RequestFormat {
  std::string name{}, summary{};
  bool blocks = false;  ///< whether it can say which prompts share tokens
};
const std::vector<RequestFormat>& request_formats();

/// What one line breaks.
struct Violation {
  std::uint64_t line = 0;
  std::string problem{}, hint{};
};

/// Reads all lines, those behind a bad one as well, and gives what is against a rule to `found`, a line's
/// first offence each. Returns the requests of the sound lines. Throws Error(input) where no further line can
/// be read.
RequestTrace read_on(const std::string& path, const ReadOptions& options,
                     const std::function<void(Violation)>& found);

}  // namespace kvsim::requests
