// What verifying the digests of blocks costs: the same trace with them and without, as schema 1.3 had it,
// read head by head from the page cache as replay reads it, one thread.
//
//   bench_reader [PAIRS] [FOLDER]
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/rng.hpp"
#include "tests/bench/paired.hpp"
#include "traces/format/block_digest.hpp"
#include "traces/format/memory_trace.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/writer.hpp"

using namespace kvsim;

namespace {

constexpr trace::Tensor kTensors[] = {trace::Tensor::key, trace::Tensor::value, trace::Tensor::query};

/// One layer of Llama-3-8B's shape, 8,192 tokens.
trace::MemoryTrace made(Elem elem) {
  trace::Model model;
  model.n_layers = 1;
  model.n_q_heads = 32;
  model.n_kv_heads = 8;
  model.head_dim = 128;
  trace::Header header = trace::plain_header(model, 8100, 92);
  header.elem = elem;
  trace::MemoryTrace out(std::move(header));
  for (const trace::Tensor tensor : kTensors) {
    for (std::uint32_t head = 0; head < trace::schema::tensor_heads(out.header().model, tensor); ++head) {
      std::uint64_t key = combine({static_cast<std::uint64_t>(tensor), head});
      for (float& value : out.rows(tensor, 0, head))
        value = static_cast<float>(uniform01(key = mix(key)) - 0.5);
    }
  }
  return out;
}

/// Opens the trace and reads all of it; `rows` at a time, 0: a whole head.
void read_all(const std::string& path, std::uint64_t rows, std::vector<float>& out) {
  const auto source = trace::open_trace(path);
  const trace::Header& header = source->header();
  for (const trace::Tensor tensor : kTensors) {
    const std::uint64_t n = rows == 0 ? header.n_tokens() : rows;
    out.resize(n * 128);
    for (std::uint32_t head = 0; head < trace::schema::tensor_heads(header.model, tensor); ++head)
      for (std::uint64_t first = 0; first + n <= header.n_tokens(); first += n)
        source->read(tensor, 0, head, first, n, out);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 15;
  const std::filesystem::path folder =
      (argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path()) /
      ("kvsim-bench-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::vector<float> out;
  for (const Elem elem : {Elem::bf16, Elem::f32}) {
    const std::string name = elem_name(elem), with = folder / "with.h5", without = folder / "without.h5";
    const trace::MemoryTrace trace = made(elem);
    trace::write_trace(with, trace, {.overwrite = true});
    trace::write_trace(without, trace, {.overwrite = true, .digests = false});
    const double bytes = static_cast<double>(std::filesystem::file_size(with));
    const auto line = [&](const std::string& what, std::uint64_t rows) {
      const bench::Paired found =
          bench::paired([&] { read_all(with, rows, out); }, [&] { read_all(without, rows, out); }, pairs);
      bench::report((name + ", " + what + ": digests / Fletcher32").c_str(), found);
      std::printf("%-64s %6.2f GB/s against %.2f GB/s\n", "", bytes / found.candidate_s * 1e-9,
                  bytes / found.baseline_s * 1e-9);
    };
    line("whole heads", 0);
    line("100 rows at a time", 100);
    const auto writing = [&](bool digests) {
      return [&, digests] {
        trace::write_trace(folder / "new.h5", trace, {.overwrite = true, .digests = digests});
      };
    };
    bench::report((name + ", writing: digests / none").c_str(),
                  bench::paired(writing(true), writing(false), 5));
  }
  const std::vector<char> block(131072, 'x');
  std::uint64_t sum = 0;
  const double seconds = bench::seconds([&] {
    for (int i = 0; i < 20000; ++i) sum += trace::block_digest(block.data(), block.size());
  });
  std::printf("XXH3-64 of blocks of 128 KiB: %.1f GB/s (%llx)\n", 20000.0 * 131072 / seconds * 1e-9,
              static_cast<unsigned long long>(sum));
  std::filesystem::remove_all(folder);
  return 0;
}
