#pragma once
/// Writes traces of requests in the formats that others read.
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

enum class WrittenFormat {
  mooncake,  ///< what most tools read: arrivals, lengths, hash_ids
  bailian,   ///< turns of sessions besides, each with its whole prompt
};

struct WriteOptions {
  WrittenFormat format = WrittenFormat::mooncake;
  bool overwrite = false;
  Progress* progress = nullptr;  ///< counts requests
};

/// What the format cannot say of this trace and the file will lack: a sentence each, for people. Throws
/// Error(usage) where the file would say something else than the trace: in Mooncake's format the arrival of
/// requests that wait for a parent.
std::vector<std::string> left_out(const RequestTrace& trace, WrittenFormat format);

/// Writes a file, gzip where its name ends with .gz, that appears when it is complete. Ids are numbered anew,
/// 0, 1, 2, ... as they first occur. Times are written to a microsecond. Block sizes other than the
/// format's own stand in every line as block_size. Throws as left_out() does, Error(usage)
/// for times beyond 2^31 seconds, and Error(input) for a path
/// that cannot be written.
void write_requests(const RequestTrace& trace, const std::string& path, const WriteOptions& options);

}  // namespace kvsim::requests
