// Reads mutated trace files, the same ones in every run: each is read or refused with an input error. Mutants
// run in child processes. A crash inside libhdf5 (1.10 has known parser bugs) is reported but does not fail
// the test; a crash anywhere else does. KVSIM_FUZZ_ROUNDS=n tries n times as many.
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/check.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/sequence.hpp"
#include "traces/format/writer.hpp"

#ifdef __SANITIZE_ADDRESS__
// Findings raise SIGABRT, so that the handler below can see which library they are in. libhdf5 requests
// absurd sizes.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:allocator_may_return_null=1:handle_abort=0";
}
#endif

using namespace kvsim;
using namespace kvsim::test;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;  // a sanitizer reserves terabytes, so an address limit would stop it at
                                   // once
#else
constexpr bool kSanitized = false;
#endif

std::string sound_file(Elem elem) {
  trace::Header header = trace::plain_header(small_model(1, 1, 2), 6, 2);
  header.model.hidden_size = 6;
  header.elem = elem;
  header.output_elem = elem;
  header.attention_token = {1, 7};
  header.query_token = {1, 6, 7};
  header.counted_tokens = 6;
  header.text_offset.assign(9, 0);
  const trace::MemoryTrace made = numbered_trace(header);
  const Scratch scratch;
  trace::Writer writer(scratch.file("a.h5"), header);
  for (const trace::Tensor tensor : kTensors) {
    std::vector<float> block;
    for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head) {
      const std::vector<float> rows = all_rows(made, tensor, 0, head);
      block.insert(block.end(), rows.begin(), rows.end());
    }
    writer.append(tensor, 0, tensor == trace::Tensor::query ? 3 : 8, block);
  }
  writer.put_output_weights(0, all_output_weights(made, 0));
  const UniformColumns columns(2, 6);
  writer.put_column_statistics(0, 6, columns.sum, columns.sum_squares);
  writer.append_attention(0, 0, 2, std::vector<float>(4, 0.5F));
  writer.append_attention(0, 0, 8, std::vector<float>(16, 0.125F));
  writer.finish(header);
  return bytes_of(scratch.file("a.h5"));
}

/// Bob Jenkins' lookup3, the checksum of HDF5 metadata.
std::uint32_t metadata_checksum(const unsigned char* data, std::size_t length) {
  const auto rotate = [](std::uint32_t x, int k) { return x << k | x >> (32 - k); };
  std::uint32_t a = 0xdeadbeefU + static_cast<std::uint32_t>(length), b = a, c = a;
  std::array<unsigned char, 12> block{};
  while (length > 0) {
    const std::size_t n = std::min<std::size_t>(length, 12);
    block.fill(0);
    std::memcpy(block.data(), data, n);
    std::array<std::uint32_t, 3> word{};
    std::memcpy(word.data(), block.data(), 12);
    a += word[0], b += word[1], c += word[2];
    data += n;
    length -= n;
    if (length > 0) {
      a -= c, a ^= rotate(c, 4), c += b;
      b -= a, b ^= rotate(a, 6), a += c;
      c -= b, c ^= rotate(b, 8), b += a;
      a -= c, a ^= rotate(c, 16), c += b;
      b -= a, b ^= rotate(a, 19), a += c;
      c -= b, c ^= rotate(b, 4), b += a;
    } else {
      c ^= b, c -= rotate(b, 14);
      a ^= c, a -= rotate(c, 11);
      b ^= a, b -= rotate(a, 25);
      c ^= b, c -= rotate(b, 16);
      a ^= c, a -= rotate(c, 4);
      b ^= a, b -= rotate(a, 14);
      c ^= b, c -= rotate(b, 24);
    }
  }
  return c;
}

/// A piece of metadata that ends with its own checksum.
struct Sealed {
  std::size_t begin, end;  ///< end: first byte after the checksum
};

void seal(std::string& file, const Sealed& piece) {
  const std::uint32_t sum = metadata_checksum(
      reinterpret_cast<const unsigned char*>(file.data()) + piece.begin, piece.end - 4 - piece.begin);
  std::memcpy(file.data() + piece.end - 4, &sum, 4);
}

/// The superblock and object headers, found by their signatures. Unless their checksums are recomputed, every
/// mutant is refused at once.
std::vector<Sealed> sealed_pieces(const std::string& file) {
  std::vector<Sealed> out{{0, 48}};
  for (std::size_t at = file.find("OHDR"); at != std::string::npos; at = file.find("OHDR", at + 4)) {
    const auto flags = static_cast<unsigned char>(file[at + 5]);
    std::size_t cursor = at + 6 + ((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0);
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + cursor, std::size_t{1} << (flags & 3));
    cursor += (std::size_t{1} << (flags & 3)) + size + 4;
    out.push_back({at, cursor});
  }
  return out;
}

/// Mutant number `number` of a sound file.
std::string mutate(const std::string& sound, const std::vector<Sealed>& pieces, std::uint64_t number) {
  std::uint64_t counter = 0;
  const auto draw = [&](std::uint64_t below) { return combine({number, ++counter}) % below; };
  static constexpr std::array<std::uint64_t, 8> kExtremes{0,      1,          0x7f,       0xff,
                                                          0xffff, 0x7fffffff, 0xffffffff, ~0ULL};
  std::string file = sound;
  const std::uint64_t kind = draw(8);
  if (kind == 0) {
    file.resize(draw(file.size()));
  } else if (kind == 1) {  // flips bits anywhere
    for (std::uint64_t i = 0, n = 1 + draw(16); i < n; ++i)
      file[draw(file.size())] ^= static_cast<char>(1 << draw(8));
  } else if (kind == 2) {  // copies one block over another
    const std::size_t bytes = 1 + draw(64);
    std::memmove(file.data() + draw(file.size() - bytes), file.data() + draw(file.size() - bytes), bytes);
  } else {  // plausible metadata: changes it and recomputes the checksum
    for (std::uint64_t i = 0, n = 1 + draw(3); i < n; ++i) {
      const Sealed& piece = pieces[draw(pieces.size())];
      const std::size_t at = piece.begin + 4 + draw(piece.end - piece.begin - 8);
      if (draw(2) == 0) {
        file[at] = static_cast<char>(draw(256));
      } else {
        const std::size_t bytes = std::min<std::size_t>(std::size_t{1} << draw(4), piece.end - 4 - at);
        std::memcpy(file.data() + at, &kExtremes[draw(kExtremes.size())], bytes);
      }
      seal(file, piece);
    }
  }
  return file;
}

void read_everything(const std::string& path) {
  const std::unique_ptr<trace::Source> source = trace::open_trace(path);
  const trace::Header& header = source->header();
  for (const trace::Tensor tensor : kTensors)
    for (std::uint32_t layer = 0; layer < header.model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < heads_of(header.model, tensor); ++head)
        all_rows(*source, tensor, layer, head);
  for (std::uint32_t layer = 0; source->has_output_weights() && layer < header.model.n_layers; ++layer)
    all_output_weights(*source, layer);
  for (std::size_t i = 0; i < header.sequence_leaf.size(); ++i) trace::Sequence(*source, i);
  Progress progress;
  trace::check_trace(path, progress);
}

enum class Fate : unsigned char { not_tried, accepted, refused, wrong_error, died, died_in_libhdf5 };

/// The state that a child shares with its parent, readable after a crash of the child.
struct Board {
  std::size_t current = 0;
  std::array<Fate, 1 << 20> fates{};
};
Board* g_board = nullptr;

/// Finds the library that crashed: that of the innermost frame outside the C library and the sanitizer.
void on_death(int signal) {
  std::array<void*, 64> frames{};
  const int n = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  Fate fate = Fate::died;
  for (int i = 2; i < n; ++i) {  // skips this handler and the signal's own frame
    Dl_info info{};
    if (::dladdr(frames[static_cast<std::size_t>(i)], &info) == 0 || info.dli_fname == nullptr) continue;
    if (std::strstr(info.dli_fname, "libc.so") != nullptr ||
        std::strstr(info.dli_fname, "libasan") != nullptr)
      continue;
    if (std::strstr(info.dli_fname, "libhdf5") != nullptr ||
        std::strstr(info.dli_fname, "libz.so") != nullptr)
      fate = Fate::died_in_libhdf5;
    break;
  }
  g_board->fates[g_board->current] = fate;
  ::_exit(100 + signal);
}

/// Tries mutants from `first` up to `last`; returns the number of the next mutant.
std::size_t run_batch(const std::string& sound, const std::vector<Sealed>& pieces, std::size_t first,
                      std::size_t last, const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    void* warm_up[1];
    ::backtrace(warm_up, 1);  // the first call allocates
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGALRM}) std::signal(signal, on_death);
    const rlimit memory{1ULL << 30, 1ULL << 30};
    if (!kSanitized) ::setrlimit(RLIMIT_AS, &memory);
    for (std::size_t i = first; i < last; ++i) {
      g_board->current = i;
      std::ofstream(path, std::ios::binary) << mutate(sound, pieces, i);
      ::alarm(30);
      try {
        read_everything(path);
        g_board->fates[i] = Fate::accepted;
      } catch (const Error& error) {
        g_board->fates[i] = error.kind() == ErrorKind::input ? Fate::refused : Fate::wrong_error;
      } catch (...) {
        g_board->fates[i] = Fate::wrong_error;
      }
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return last;
  Fate& fate = g_board->fates[g_board->current];
  if (fate == Fate::not_tried) fate = Fate::died;  // the signal handler could not run
  return g_board->current + 1;
}

std::size_t rounds() {
  const char* text = std::getenv("KVSIM_FUZZ_ROUNDS");
  return text == nullptr ? 1 : std::max(1UL, std::strtoul(text, nullptr, 10));
}

}  // namespace

TEST_CASE("the metadata checksum is HDF5's") {
  std::string file = sound_file(Elem::f32);
  const std::vector<Sealed> pieces = sealed_pieces(file);
  REQUIRE(pieces.size() > 30);
  const std::string before = file;
  for (const Sealed& piece : pieces) seal(file, piece);
  CHECK(file == before);
}

TEST_CASE("mutants are read or refused") {
  const Elem elem = GENERATE(Elem::f32, Elem::bf16);
  const std::string sound = sound_file(elem);
  const std::vector<Sealed> pieces = sealed_pieces(sound);
  const Scratch scratch;
  const std::size_t mutants = std::min<std::size_t>(600 * rounds(), 1 << 20);
  void* shared = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  g_board = new (shared) Board;
  for (std::size_t next = 0; next < mutants;)
    next = run_batch(sound, pieces, next, std::min(next + 200, mutants), scratch.file("mutant.h5"));

  std::array<std::size_t, 6> counts{};
  for (std::size_t i = 0; i < mutants; ++i) {
    const Fate fate = g_board->fates[i];
    ++counts[static_cast<std::size_t>(fate)];
    INFO("mutant " << i << " of " << elem_name(elem));
    if (fate == Fate::wrong_error) CHECK(fate != Fate::wrong_error);
    if (fate == Fate::died) CHECK(fate != Fate::died);
    if (fate == Fate::died_in_libhdf5)
      WARN("libhdf5 itself died of mutant " << i << " of " << elem_name(elem));
  }
  ::munmap(shared, sizeof(Board));
  g_board = nullptr;
  CHECK(counts[static_cast<std::size_t>(Fate::not_tried)] == 0);
  // The reader must neither accept nor refuse everything.
  CHECK(counts[static_cast<std::size_t>(Fate::accepted)] > mutants / 20);
  CHECK(counts[static_cast<std::size_t>(Fate::refused)] > mutants / 3);
}
