#pragma once
/// The commands of kvsim requests. One file each (command_requests_NAME.cpp); command_requests.cpp lists
/// them.
#include "tools/commands/command.hpp"

namespace kvsim::tools {

void add_requests_info(Command requests);
void add_requests_check(Command requests);
void add_requests_convert(Command requests);
void add_requests_generate(Command requests);
void add_requests_replay(Command requests);
void add_requests_batch(Command requests);
void add_requests_serve(Command requests);
void add_requests_compression(Command requests);
void add_requests_tiers(Command requests);

}  // namespace kvsim::tools
