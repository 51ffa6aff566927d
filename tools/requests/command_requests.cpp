// kvsim requests: traces of requests to serving systems.
#include "tools/requests/requests_commands.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::tools {
namespace {

std::string requests_footer() {
  std::string text = R"(Examples:
  kvsim requests info traces/sample/requests/mooncake_conversation.jsonl.gz
  kvsim requests convert qwen_traceA_blksz_16.jsonl --to mooncake -o traceA.jsonl.gz
  kvsim requests generate --requests 2000 --rate 2 -o synthetic.jsonl.gz
  kvsim requests replay mine.jsonl --policy all --capacity 1M..256M:x2

Formats:
)";
  for (const requests::RequestFormat& format : requests::request_formats()) {
    std::string name = format.name;
    name.resize(20, ' ');
    text += "  " + name + format.summary + "\n";
  }
  return text;
}

}  // namespace

void add_requests_command(Command app) {
  Command command = app.add_subcommand(
      "requests", "Look into traces of requests to serving systems, generate, replay, batch and serve them",
      requests_footer());
  command.require_subcommand(1);
  add_requests_info(command);
  add_requests_check(command);
  add_requests_convert(command);
  add_requests_generate(command);
  add_requests_replay(command);
  add_requests_batch(command);
  add_requests_serve(command);
  add_requests_compression(command);
  add_requests_tiers(command);
}

}  // namespace kvsim::tools
