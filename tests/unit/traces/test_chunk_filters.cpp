// Tests filters of chunks against libhdf5: what it stores kvsim undoes, and what kvsim stores are its bytes.
#include <zlib.h>

#include <catch2/catch.hpp>

#include "sim/base/rng.hpp"
#include "tests/unit/traces/hdf5_edit.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/format/chunk_filters.hpp"

namespace kvsim::test::test_chunk_filters {

using hdf5::StoredFilter;
using hdf5::Unfiltered;

namespace {

using Bytes = std::vector<std::byte>;

/// Bytes that deflate well and that differ with `seed`.
Bytes some_bytes(std::size_t n, std::uint64_t seed) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(mix(seed + i / 3) % 7);
  return out;
}

struct Stored {
  Bytes chunk;
  std::vector<StoredFilter> filters;
};

/// What libhdf5 makes of a chunk of `n` elements.
Stored by_libhdf5(const Scratch& scratch, const Bytes& chunk, hid_t type, hsize_t n, bool shuffle,
                  unsigned deflate, bool checksum) {
  const hdf5::Session session;
  const hdf5::File file(
      need(H5Fcreate(scratch.file("c.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)));
  Stored out;
  const auto element = static_cast<std::size_t>(H5Tget_size(type));
  const hdf5::PropertyList list = creation_list([&](hid_t id) {
    need(H5Pset_chunk(id, 1, &n));
    if (shuffle) need(H5Pset_shuffle(id)), out.filters.push_back({H5Z_FILTER_SHUFFLE, element});
    if (deflate > 0) need(H5Pset_deflate(id, deflate)), out.filters.push_back({H5Z_FILTER_DEFLATE, 1});
    if (checksum) need(H5Pset_fletcher32(id)), out.filters.push_back({H5Z_FILTER_FLETCHER32, 1});
  });
  const hdf5::Dataspace space(need(H5Screate_simple(1, &n, nullptr)));
  const hdf5::Dataset dataset(
      need(H5Dcreate2(file.id(), "x", type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT)));
  need(H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, chunk.data()));
  need(H5Dflush(dataset.id()));
  const hsize_t at = 0;
  hsize_t bytes = 0;
  need(H5Dget_chunk_storage_size(dataset.id(), &at, &bytes));
  out.chunk.resize(bytes);
  std::uint32_t left_out = 0;
  need(H5Dread_chunk(dataset.id(), H5P_DEFAULT, &at, &left_out, out.chunk.data()));
  REQUIRE(left_out == 0);
  return out;
}

}  // namespace

TEST_CASE("chunks are filtered into the bytes that libhdf5 stores, and back") {
  const Scratch scratch;
  const auto [type, element] = GENERATE(table<hid_t, std::size_t>(
      {{H5T_STD_U8LE, 1}, {H5T_STD_U16LE, 2}, {H5T_IEEE_F32LE, 4}, {H5T_STD_U64LE, 8}}));
  const hsize_t n = GENERATE(1, 2, 7, 1000, 32769);
  const bool checksum = GENERATE(false, true);
  const unsigned deflate = GENERATE(0, 1, 9);
  const Bytes chunk = some_bytes(n * element, n + element);
  const Stored stored = by_libhdf5(scratch, chunk, type, n, deflate > 0, deflate, checksum);
  INFO(n << " elements of " << element << ", deflate " << deflate << ", checksum " << checksum);
  CHECK(hdf5::filtered(chunk, {.checksum = checksum, .deflate = deflate}, element) == stored.chunk);
  Bytes back(chunk.size());
  CHECK(hdf5::unfilter(stored.chunk, stored.filters, 0, true, back) == Unfiltered::sound);
  CHECK(back == chunk);
}

TEST_CASE("a checksum that does not fit is noticed where it is looked at") {
  const Bytes chunk = some_bytes(99, 3);
  const std::vector<StoredFilter> filters{{H5Z_FILTER_FLETCHER32, 1}};
  Bytes stored = hdf5::filtered(chunk, {.checksum = true}, 1), out(chunk.size());
  // As HDF5 before 1.6.3 stored it.
  Bytes exchanged = stored;
  std::swap(exchanged[99], exchanged[100]);
  std::swap(exchanged[101], exchanged[102]);
  CHECK(hdf5::unfilter(exchanged, filters, 0, true, out) == Unfiltered::sound);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    stored[i] ^= std::byte{16};
    CHECK(hdf5::unfilter(stored, filters, 0, true, out) == Unfiltered::wrong_checksum);
    CHECK(hdf5::unfilter(stored, filters, 0, false, out) == Unfiltered::sound);
    stored[i] ^= std::byte{16};
  }
  CHECK(hdf5::unfilter(stored, filters, 1, true, out) == Unfiltered::wrong_size);  // four bytes too many
  CHECK(hdf5::unfilter(chunk, filters, 1, true, out) == Unfiltered::sound);
  CHECK(hdf5::unfilter(std::span(stored).first(3), filters, 0, true, out) == Unfiltered::wrong_size);
}

TEST_CASE("a chunk that inflates to another size is noticed before it takes more memory") {
  const std::vector<StoredFilter> filters{{H5Z_FILTER_SHUFFLE, 2}, {H5Z_FILTER_DEFLATE, 1}};
  Bytes out(64);
  for (const std::size_t bytes : {0, 63, 65, 1 << 20}) {
    const Bytes stored = hdf5::filtered(Bytes(bytes), {.deflate = 9}, 2);
    CHECK(hdf5::unfilter(stored, filters, 0, true, out) == Unfiltered::wrong_size);
  }
  Bytes stored = hdf5::filtered(some_bytes(64, 5), {.deflate = 9}, 2);
  stored.back() ^= std::byte{1};  // of zlib's own checksum
  CHECK(hdf5::unfilter(stored, filters, 0, true, out) == Unfiltered::wrong_size);
  CHECK(hdf5::unfilter({}, filters, 0, true, out) == Unfiltered::wrong_size);
}

TEST_CASE("bytes beyond the last whole element stay where a shuffle finds them") {
  const Bytes chunk = some_bytes(11, 8);
  Bytes out(11);
  const std::vector<StoredFilter> filters{{H5Z_FILTER_SHUFFLE, 4}, {H5Z_FILTER_DEFLATE, 1}};
  const Bytes stored = hdf5::filtered(chunk, {.deflate = 1}, 4);
  CHECK(hdf5::unfilter(stored, filters, 0, true, out) == Unfiltered::sound);
  CHECK(out == chunk);
  // By hand: two elements of four bytes, their bytes sorted by place; three bytes are left.
  Bytes apart(11);
  auto size = static_cast<uLongf>(apart.size());
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(apart.data()), &size,
                     reinterpret_cast<const Bytef*>(stored.data()),
                     static_cast<uLong>(stored.size())) == Z_OK);
  const std::size_t place[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 9, 10};
  for (std::size_t i = 0; i < 11; ++i) CHECK(apart[i] == chunk[place[i]]);
}

}  // namespace kvsim::test::test_chunk_filters
