// kvsim requests check: every line of traces of requests held to all rules.
#include <ostream>

#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "traces/requests/request_check.hpp"

namespace kvsim::tools {
namespace {

struct RequestsCheckOptions {
  std::vector<std::string> files{};
  RequestOptions reading{};
  std::uint64_t most = 20;
  bool quiet = false;
};

void write_verdict(std::ostream& out, const std::string& file, const requests::RequestCheck& check) {
  out << file << ": ";
  if (check.bad_lines == 0) {
    out << "sound (" << check.format << ", " << check.requests << " requests, " << check.blocks
        << " blocks)\n";
    return;
  }
  out << "BAD in " << check.bad_lines << (check.bad_lines == 1 ? " line\n" : " lines\n");
  std::string hint;
  for (const requests::Violation& violation : check.first) {
    out << "  line " << violation.line << ": " << violation.problem << '\n';
    if (!violation.hint.empty() && violation.hint != hint) out << "    " << violation.hint << '\n';
    hint = violation.hint;
  }
  if (check.bad_lines > check.first.size())
    out << "  and " << check.bad_lines - check.first.size() << " more\n";
}

void run_requests_check(const RequestsCheckOptions& options) {
  std::size_t bad = 0;
  for (const std::string& file : options.files) {
    requests::ReadOptions reading = read_options(options.reading);
    const requests::RequestCheck check = followed("checking " + file, options.quiet, [&](Progress& progress) {
      reading.progress = &progress;
      return requests::check_requests(file, reading, options.most);
    });
    write_verdict(front_end().results(), file, check);
    front_end().results().flush();
    bad += check.bad_lines > 0 ? 1 : 0;
  }
  if (bad > 0)
    input_error(std::to_string(bad) + " of " + std::to_string(options.files.size()) + " traces of requests " +
                (bad == 1 ? "is" : "are") + " bad");
}

}  // namespace

void add_requests_check(Command requests) {
  Command command = requests.add_subcommand(
      "check", "Reads whole traces: times, lengths, numbers of blocks, parents, what stands before an id",
      R"(Examples:
  kvsim requests check mine.jsonl
  kvsim requests check *.jsonl.gz && echo all sound
)");
  const auto options = std::make_shared<RequestsCheckOptions>();
  command.add_required("FILE", options->files, "", "Traces of requests, gzip or not");
  add_request_options(command, options->reading);
  command.add_option("--most", options->most, "N", "Bad lines to list of each trace");
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { run_requests_check(*options); });
}

}  // namespace kvsim::tools
