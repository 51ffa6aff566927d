#pragma once
/// How a trace of requests is read: the same options in every command that reads one.
#include <string>

#include "tools/options/command_tree.hpp"
#include "tools/options/output_options.hpp"
#include "traces/requests/read_requests.hpp"
#include "traces/requests/write_requests.hpp"

namespace kvsim::tools {

struct RequestOptions {
  std::string from{}, hash{}, tail{}, generated{};  ///< as typed; empty: as the trace says
  std::string fields{}, tokenizer{};                ///< of one's own logs
  std::uint64_t block_tokens = 0, limit = 0;        ///< 0: as the trace says; all requests
};

/// Adds --from, --fields, --tokenizer, --block-tokens, --hash, --tail, --generated and --limit.
void add_request_options(Command command, RequestOptions& options);

/// Throws Error(usage) for a block size that is none, and for fields that there are not, Error(input) for a
/// tokenizer that cannot be read.
requests::ReadOptions read_options(const RequestOptions& options);

/// What all commands are told that run a trace.
struct RequestRun : OutputOptions {
  std::string file{};
  RequestOptions reading{};
  unsigned threads = 0;
  bool quiet = false;
};
/// Adds FILE.
void add_request_file(Command command, RequestRun& run);
/// Adds what stands behind a command's own options: how the trace is read, where results go, --threads and
/// --quiet.
void add_run_options(Command command, RequestRun& run);

/// Reads a trace while the front end shows how far it is.
requests::RequestTrace read_shown(const std::string& path, requests::ReadOptions options, bool quiet);
requests::RequestTrace read_shown(const RequestRun& run);

/// Throws Error(usage) for a trace that does not say which tokens prompts share; `hint` says what to do.
void require_blocks(const requests::RequestTrace& trace, const std::string& file, const std::string& hint);

/// "mooncake|bailian|...": for help.
std::string request_format_names();

// Files of requests that commands write.

/// Adds --to.
void add_written_format(Command command, std::string& to);

/// Throws Error(usage) for a PATH that is that of results, and Error(input) where a file stands, before any
/// work.
void refuse_requests_output(const std::string& path, bool overwrite);

/// Writes the trace while the front end shows how far it is, and notes what the format cannot say. `to`
/// empty: bailian where requests wait for parents, else mooncake.
void write_shown(const requests::RequestTrace& trace, const std::string& path, const std::string& to,
                 bool overwrite, bool quiet);

}  // namespace kvsim::tools
