#include "tools/requests/written_requests.hpp"

#include <algorithm>
#include <memory>

#include "sim/base/partial_file.hpp"
#include "tools/options/output_options.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

using requests::WrittenFormat;

void add_written_format(Command command, std::string& to) {
  command.add_option(
      "--to", to, "mooncake|bailian",
      "mooncake: arrivals, lengths, hash_ids; bailian: turns of sessions besides (default: bailian "
      "where requests wait for others to end, else mooncake)",
      hidden(one_of({"mooncake", "bailian"})));
}

void refuse_requests_output(const std::string& path, bool overwrite) {
  require_ending(path, analysis::Format::jsonl);
  refuse_output(path, overwrite);
}

void write_shown(const requests::RequestTrace& trace, const std::string& path, const std::string& to,
                 bool overwrite, bool quiet) {
  const bool waits = std::ranges::any_of(
      trace.requests, [](const requests::Request& request) { return request.after_parent; });
  const bool bailian = to.empty() ? waits : to == "bailian";
  requests::WriteOptions options{.format = bailian ? WrittenFormat::bailian : WrittenFormat::mooncake,
                                 .overwrite = overwrite};
  const std::vector<std::string> notes = requests::left_out(trace, options.format);
  {
    Progress progress;
    options.progress = &progress;
    const std::shared_ptr<void> shown = front_end().follow(progress, "writing " + path, quiet);
    requests::write_requests(trace, path, options);
  }
  if (quiet) return;
  for (const std::string& text : notes) note(text);
}

}  // namespace kvsim::tools
