#pragma once
/// The commands of kvsim requests. One file each (command_requests_NAME.cpp); command_requests.cpp lists
/// them.
#include <CLI/CLI.hpp>

namespace kvsim::tools {

void add_requests_info(CLI::App& requests);
void add_requests_check(CLI::App& requests);
void add_requests_convert(CLI::App& requests);
void add_requests_generate(CLI::App& requests);
void add_requests_replay(CLI::App& requests);
void add_requests_batch(CLI::App& requests);
void add_requests_serve(CLI::App& requests);
void add_requests_compression(CLI::App& requests);
void add_requests_tiers(CLI::App& requests);

}  // namespace kvsim::tools
