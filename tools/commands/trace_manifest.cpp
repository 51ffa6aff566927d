#include <filesystem>
#include <ostream>

#include "sim/base/partial_file.hpp"
#include "tools/commands/command.hpp"
#include "traces/format/manifest.hpp"

namespace kvsim::tools {
namespace {

struct ManifestOptions {
  std::string folder, licence, output;
  std::uint64_t part = 0;
  bool overwrite = false, quiet = false;
};

void write_manifest(const ManifestOptions& options) {
  namespace fs = std::filesystem;
  const std::string path =
      options.output.empty() ? (fs::path(options.folder) / "manifest.json").string() : options.output;
  refuse_output(path, options.overwrite);
  const std::string manifest = followed("reading " + options.folder, options.quiet, [&](Progress& progress) {
    return trace::manifest_of(options.folder, fs::path(path).filename().string(), options.licence,
                              options.part, progress);
  });
  AtomicFile file(path, options.overwrite);
  file.write(manifest);
  file.commit();
  front_end().results() << path << '\n';
}

}  // namespace

void add_trace_manifest(Command trace) {
  Command command = trace.add_subcommand(
      "manifest", "Lists the files of a folder with sizes and checksums, for a set that is published",
      R"(Examples:
  kvsim trace manifest traces --licence CC-BY-4.0
  kvsim trace manifest traces --licence CC-BY-4.0 --part 2GiB
  kvsim trace check --manifest traces/manifest.json

Parts are those of `split -b 2G -d -a 3 long.h5 long.h5.`.
)");
  const auto options = std::make_shared<ManifestOptions>();
  command.add_required("FOLDER", options->folder, "DIR", "Folder of traces, and of what goes with them");
  command.add_required("--licence", options->licence, "TEXT",
                       "Under which the files are published, such as CC-BY-4.0");
  command.add_option("--part", options->part, "BYTES",
                     "Lists longer files in parts of so many bytes, too: NAME.000, NAME.001, ...",
                     byte_count());
  command.add_option("-o,--output", options->output, "FILE",
                     "Manifest to write; default FOLDER/manifest.json");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.add_flag("-q,--quiet", options->quiet, "No progress");
  command.callback([options] { write_manifest(*options); });
}

}  // namespace kvsim::tools
