// Bytes to disk: compares a trace with the same bytes by plain write() and fsync(), and times the stages that
// a trace's bytes pass through.
//
//   bench_writer [PAIRS] [FOLDER]
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/sha256.hpp"
#include "tests/bench/paired.hpp"
#include "traces/format/writer.hpp"

using namespace kvsim;

namespace {

// One layer of Llama-3-8B's shape, bfloat16: 12 KiB a token.
constexpr std::uint32_t kHeads = 32, kKvHeads = 8, kDim = 128;
constexpr std::uint64_t kTokens = 16384, kPass = 512;
constexpr std::uint64_t kBytes = kTokens * (kHeads + 2 * kKvHeads) * kDim * 2;

trace::Header header() {
  trace::Header header;
  header.model.name = "bench";
  header.model.model_type = "llama";
  header.model.n_layers = 1;
  header.model.n_q_heads = kHeads;
  header.model.n_kv_heads = kKvHeads;
  header.model.head_dim = header.model.v_head_dim = header.model.rotary_dim = kDim;
  header.model.hidden_size = kHeads * kDim;
  header.model.vocab_size = 1;
  header.model.attn_scale = 1;
  header.model.rope_type = "default";
  header.model.rope_layout = "half_split";
  header.model.layer_window = {-1};
  header.model.inv_freq.assign(kDim / 2, 1.0F);
  header.elem = Elem::bf16;
  header.token_id.assign(kTokens, 0);
  header.token_segment.assign(kTokens, 0);
  header.token_flags.assign(kTokens, 0);
  for (std::uint64_t t = 0; t < kTokens; ++t) header.token_position.push_back(static_cast<std::int32_t>(t));
  header.segments = {{.parent = -1, .begin = 0, .count = static_cast<std::uint32_t>(kTokens), .path_len = 0}};
  header.passes = {{.segment = 0,
                    .begin = 0,
                    .q_len = static_cast<std::uint32_t>(kTokens),
                    .phase = trace::Phase::prompt}};
  header.sequence_leaf = {0};
  return header;
}

void write_as_trace(const std::string& path, const std::vector<float>& rows, bool checksum) {
  const trace::Header all = header();
  trace::Writer writer(path, all, {.overwrite = true, .checksum = checksum});
  const std::span<const float> span(rows);
  for (std::uint64_t first = 0; first < kTokens; first += kPass) {
    writer.append(trace::Tensor::key, 0, kPass, span.first(kPass * kKvHeads * kDim));
    writer.append(trace::Tensor::value, 0, kPass, span.first(kPass * kKvHeads * kDim));
    writer.append(trace::Tensor::query, 0, kPass, span.first(kPass * kHeads * kDim));
  }
  writer.finish(all);
}

void write_plainly(const std::string& path, const std::vector<std::byte>& block) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0) std::abort();
  for (std::uint64_t done = 0; done < kBytes; done += block.size())
    if (::write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size())) std::abort();
  if (::fsync(file) != 0 || ::close(file) != 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::filesystem::path folder =
      (argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path()) /
      ("kvsim-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::vector<float> rows(kPass * kHeads * kDim, 1.5F);
  const std::vector<std::byte> block(kPass * kHeads * kDim * 2, std::byte{1});
  std::vector<std::byte> stored(block.size());
  const auto whole = [&](const auto& work) {
    return [&] {
      for (std::uint64_t done = 0; done < kBytes; done += block.size()) work();
    };
  };
  const auto plain = [&] { write_plainly(folder / "plain", block); };
  std::printf("%llu MiB\n", static_cast<unsigned long long>(kBytes >> 20));
  bench::report("a trace / the same bytes by write() and fsync()",
                bench::paired([&] { write_as_trace(folder / "trace.h5", rows, true); }, plain, pairs));
  bench::report("a trace without checksums / write() and fsync()",
                bench::paired([&] { write_as_trace(folder / "trace.h5", rows, false); }, plain, pairs));
  bench::report("narrowing to bfloat16 / write() and fsync()",
                bench::paired(whole([&] { narrow(Elem::bf16, rows.data(), rows.size(), stored.data()); }),
                              plain, pairs));
  Sha256 digest;
  bench::report("SHA-256 / write() and fsync()",
                bench::paired(whole([&] { digest.update(block.data(), block.size()); }), plain, pairs));
  std::filesystem::remove_all(folder);
  return 0;
}
