// kvsim trace: what a trace file holds, whether it is sound, what its parts are for, and synthetic ones.
#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/partial_file.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"
#include "tools/options/option_numbers.hpp"
#include "tools/printing/trace_summary.hpp"
#include "traces/format/check.hpp"
#include "traces/format/manifest.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/writer.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::tools {
namespace {

void add_info(Command trace) {
  Command info = trace.add_subcommand("info", "What a trace holds: model, tokens, tensors, times, provenance",
                                      R"(Examples:
  kvsim trace info run.h5
  kvsim trace info run.h5 --format json
)");
  struct Options {
    std::string file, format = "table";
  };
  const auto options = std::make_shared<Options>();
  info.add_required("TRACE", options->file, "", "Trace");
  info.add_option("--format", options->format, "", "table or json", one_of({"table", "json"}));
  info.callback([options] {
    require_trace(options->file);
    const std::unique_ptr<trace::Source> source = trace::open_trace(options->file);
    source->require_unchanged();
    if (options->format == "json") {
      write_trace_json(front_end().results(), *source);
    } else {
      write_trace_table(front_end().results(), *source);
    }
  });
}

void write_verdict(const std::string& file, const trace::CheckReport& report) {
  if (report.problems.empty()) {
    front_end().results() << file << ": sound (" << report.tensor_bytes << " bytes of tensors";
    if (report.attention_rows > 0)
      front_end().results() << ", " << report.attention_rows << " attention rows";
    if (report.column_heads > 0)
      front_end().results() << ", column statistics of " << report.column_heads << " heads, "
                            << report.recomputed_heads << " recomputed";
    front_end().results() << ", content " << report.content_sha256 << ")\n";
    return;
  }
  front_end().results() << file << ": BAD\n";
  for (const std::string& problem : report.problems) front_end().results() << "  " << problem << '\n';
}

/// Whether a trace is sound; its verdict is written.
bool check_file(const std::string& file, bool quiet) {
  const trace::CheckReport report = followed(
      "checking " + file, quiet, [&](Progress& progress) { return trace::check_trace(file, progress); });
  write_verdict(file, report);
  front_end().results().flush();
  return report.problems.empty();
}

/// Whether a file of a manifest is as listed, and sound if it is a trace.
bool check_manifest_file(const std::string& folder, const trace::ManifestFile& file, bool quiet) {
  const std::string path = (std::filesystem::path(folder) / file.name).string();
  const trace::FoundFile found = followed("checking " + path, quiet, [&](Progress& progress) {
    progress.total = file.bytes;
    return trace::check_listed(folder, file, progress);
  });
  if (found.problems.empty() && found.whole && begins_with(path, "\x89HDF") &&
      !analysis::holds_hdf5_results(path))
    return check_file(path, quiet);
  std::ostream& out = front_end().results();
  out << path
      << (!found.problems.empty() ? ": BAD\n"
          : found.whole
              ? ": as listed\n"
              : ": all " + std::to_string(file.parts.size()) + " parts are as listed; join them: cat " +
                    shell_word(path) + ".??? > " + shell_word(path) + "\n");
  for (const std::string& problem : found.problems) out << "  " << problem << '\n';
  out.flush();
  return found.problems.empty();
}

struct CheckOptions {
  std::vector<std::string> files;
  std::string manifest;
  bool quiet = false;
};

void check_files(const CheckOptions& options) {
  if (options.files.empty() && options.manifest.empty())
    usage_error("there is nothing to check", "trace check", "Name traces, or a --manifest.");
  std::size_t bad = 0, all = options.files.size();
  for (const std::string& file : options.files) bad += check_file(file, options.quiet) ? 0 : 1;
  if (!options.manifest.empty()) {
    const std::string folder = std::filesystem::path(options.manifest).parent_path().string();
    for (const trace::ManifestFile& file : trace::read_manifest(options.manifest)) {
      bad += check_manifest_file(folder, file, options.quiet) ? 0 : 1;
      ++all;
    }
  }
  if (bad > 0)
    input_error(std::to_string(bad) + " of " + std::to_string(all) +
                (options.manifest.empty() ? " trace files " : " files ") + (bad == 1 ? "is" : "are") +
                " bad");
}

void add_check(Command trace) {
  Command check = trace.add_subcommand(
      "check",
      "Reads whole traces: structure, checksums, digests, finite numbers, attention rows that sum to 1",
      R"(Examples:
  kvsim trace check run.h5
  kvsim trace check traces/*.h5 && echo all sound
  kvsim trace check --manifest traces/manifest.json
)");
  const auto options = std::make_shared<CheckOptions>();
  check.add_option("TRACE", options->files, "", "Traces");
  check.add_option("--manifest", options->manifest, "FILE",
                   "Also the files that kvsim trace manifest listed, in its folder: sizes and checksums");
  check.add_flag("-q,--quiet", options->quiet, "No progress");
  check.callback([options] { check_files(*options); });
}

struct GenerateOptions {
  trace::SyntheticOptions synthetic;
  std::string elem = "f32", output;
  bool overwrite = false;
};

/// Generated in memory: says so before it is tried.
void refuse_what_does_not_fit(const trace::SyntheticOptions& o) {
  const double values =
      static_cast<double>(o.prompt + o.decode) * o.layers * o.kv_heads * (2.0 + o.group) * o.head_dim;
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (values * sizeof(float) > 0.9 * machine)
    usage_error("needs about " + std::to_string(static_cast<std::uint64_t>(values * sizeof(float) / 0x1p20)) +
                    " MiB of memory, more than this machine has",
                "trace generate", "Ask for fewer tokens, layers or heads.");
}

void generate(GenerateOptions& options) {
  trace::SyntheticOptions& synthetic = options.synthetic;
  synthetic.elem = options.elem == "f32" ? Elem::f32 : options.elem == "f16" ? Elem::f16 : Elem::bf16;
  require_ending(options.output, analysis::Format::h5);
  refuse_output(options.output, options.overwrite);
  refuse_what_does_not_fit(synthetic);
  const trace::MemoryTrace made = trace::synthetic_trace(synthetic);
  trace::WriteOptions write_options;
  write_options.overwrite = options.overwrite;
  trace::write_trace(options.output, made, write_options);
  front_end().results() << options.output << ": " << synthetic.prompt << " prompt and " << synthetic.decode
                        << " decode tokens, " << synthetic.layers << " layers, " << synthetic.kv_heads
                        << " KV heads\n";
}

void add_generate(Command trace) {
  Command command = trace.add_subcommand(
      "generate", "Writes a seeded synthetic trace with sinks, locality, heavy hitters, drift and needles",
      R"(Examples:
  kvsim trace generate -o synthetic.h5
  kvsim trace generate --prompt-tokens 4K --decode 256 --head-dim 128 --kv-heads 8 --group 4 --elem bf16 -o big.h5
  kvsim trace generate --sink 0 --heavy 6 --heavy-share 0.01 --seed 7 -o heavy.h5
  kvsim trace generate --prompt-tokens 32K --layers 2 --needles 16 --drift 0 --stretch 4 --elem bf16 -o needles.h5
)");
  const auto options = std::make_shared<GenerateOptions>();
  trace::SyntheticOptions& o = options->synthetic;
  const auto number = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, "", help);
  };
  command.add_required("-o,--output", options->output, "", "Trace to write");
  command.add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command.add_option("--prompt-tokens", o.prompt, "TOKENS", "Prompt tokens", token_count());
  command.add_option("--decode", o.decode, "TOKENS", "Generated tokens", token_count());
  number("--layers", o.layers, "Layers");
  number("--kv-heads", o.kv_heads, "KV heads per layer");
  number("--group", o.group, "Query heads per KV head");
  number("--head-dim", o.head_dim, "Dimension of a head, even, at least 8");
  number("--seed", o.seed, "Same seed and options, same bytes");
  number("--sink", o.sink, "Logit gained by sink tokens");
  number("--sinks", o.sinks, "How many first tokens are sinks");
  number("--locality", o.locality, "Logit gained by the nearest keys");
  number("--local-span", o.local_span, "Tokens after which that gain has fallen to 1/e");
  number("--heavy", o.heavy, "Logit gained by heavy hitters");
  number("--heavy-share", o.heavy_share, "Share of tokens that are heavy hitters in a layer");
  number("--drift", o.drift, "Turn of the topic in radians per 1000 tokens");
  number("--noise", o.noise, "Standard deviation of the unstructured part of the logits");
  number("--stretch", o.stretch,
         "How many times longer keys are, and queries shorter, in half of the noise's components, and the\n"
         "other way round in the rest: attention stays, but keys near each other are not those that a query\n"
         "looks for");
  number(
      "--needles", o.needles,
      "Facts at random places of as many equal stretches of the prompt, marked as evidence. As many last\n"
      "tokens of the prompt, the question, ask for one each, and generated tokens for one after the other");
  number("--needle-tokens", o.needle_tokens, "Successive tokens of a needle");
  number("--needle", o.needle, "Logit that they gain from a query that asks for it");
  group_options(command, "Attention",
                {"--sink", "--sinks", "--locality", "--local-span", "--heavy", "--heavy-share", "--drift",
                 "--noise", "--stretch", "--needles", "--needle-tokens", "--needle"});
  command.add_option("--elem", options->elem, "", "Stored elements: f32, f16 or bf16",
                     one_of({"f32", "f16", "bf16"}));
  command.callback([options] { generate(*options); });
}

}  // namespace

void add_trace_command(Command app) {
  Command trace = app.add_subcommand(
      "trace", "Look into traces, check, export, join, publish and mark them, generate synthetic ones",
      R"(Examples:
  kvsim trace info run.h5
  kvsim trace show run.h5
  kvsim trace check run.h5 other.h5
  kvsim trace mark run.h5 --evidence "The code of the red safe is 4721." -o marked.h5
)");
  trace.require_subcommand(1);
  add_info(trace);
  add_trace_show(trace);
  add_check(trace);
  add_trace_export(trace);
  add_trace_join(trace);
  add_trace_manifest(trace);
  add_trace_mark(trace);
  add_trace_predict(trace);
  add_generate(trace);
}

}  // namespace kvsim::tools
