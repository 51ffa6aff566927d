#pragma once
/// Files of requests that commands write.
#include <string>

#include "tools/options/command_tree.hpp"
#include "traces/requests/write_requests.hpp"

namespace kvsim::tools {

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
