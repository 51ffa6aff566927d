#include "traces/format/manifest.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::trace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifestFormat = "kvsim-manifest";
constexpr std::uint64_t kMostManifestBytes = 64U << 20;
constexpr std::size_t kMostListed = 1U << 20, kMostParts = 1000;

std::string part_name(const std::string& name, std::size_t part) {
  char number[8];
  std::snprintf(number, sizeof number, ".%03zu", part);
  return name + number;
}

/// Size and digest of a file as it is, and of its parts.
ManifestFile measured(const std::string& folder, const std::string& name, std::uint64_t part_bytes,
                      Progress& progress) {
  const std::string path = (fs::path(folder) / name).string();
  std::ifstream in(path, std::ios::binary);
  if (!in) system_error("cannot be opened", path);
  ManifestFile file{.name = name};
  Sha256 all;
  std::optional<Sha256> part;
  std::uint64_t in_part = 0;
  const auto end_part = [&] {
    file.parts.push_back({part_name(name, file.parts.size()), in_part, part->hex(), {}});
    part.reset();
    in_part = 0;
  };
  std::vector<char> block(1U << 20);
  for (;;) {
    progress.check();
    const std::uint64_t most =
        part_bytes > 0 ? std::min<std::uint64_t>(block.size(), part_bytes - in_part) : block.size();
    in.read(block.data(), static_cast<std::streamsize>(most));
    const auto got = static_cast<std::uint64_t>(in.gcount());
    if (in.bad()) system_error("cannot be read", path);
    if (got == 0) break;
    all.update(block.data(), got);
    file.bytes += got;
    progress.advance(got);
    if (part_bytes == 0) continue;
    if (!part) part.emplace();
    part->update(block.data(), got);
    in_part += got;
    if (in_part == part_bytes) end_part();
  }
  if (part) end_part();
  if (file.parts.size() < 2) file.parts.clear();
  file.sha256 = all.hex();
  return file;
}

boost::json::object manifest_json(const ManifestFile& file) {
  boost::json::object out{{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}};
  if (file.parts.empty()) return out;
  boost::json::array parts;
  for (const ManifestFile& part : file.parts) parts.emplace_back(manifest_json(part));
  out["parts"] = std::move(parts);
  return out;
}

ManifestFile listed(const boost::json::value& value, const std::string& where, bool may_have_parts) {
  const JsonObject object(value, where);
  ManifestFile file{.name = object.text("name"),
                    .bytes = object.integer("bytes", 0, std::uint64_t{1} << 62),
                    .sha256 = object.text("sha256")};
  const bool inside = !file.name.empty() && file.name != "." && file.name != ".." &&
                      file.name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
  if (!inside) input_error("is no name of a file in the manifest's folder", object.path("name"));
  if (file.sha256.size() != 64 || file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    input_error("is not 64 lower-case hexadecimal digits", object.path("sha256"));
  if (!may_have_parts || !object.has("parts")) return file;
  std::uint64_t bytes = 0;
  for (const boost::json::value& part : object.array("parts")) {
    file.parts.push_back(listed(part, object.path("parts"), false));
    bytes += file.parts.back().bytes;
  }
  if (bytes != file.bytes) input_error("do not add up to the file's bytes", object.path("parts"));
  return file;
}

/// What differs between a file as listed and as it lies there; nothing: equal.
std::string difference(const std::string& folder, const ManifestFile& file, Progress& progress) {
  const fs::path path = fs::path(folder) / file.name;
  std::error_code failed;
  const std::uint64_t bytes = fs::file_size(path, failed);
  if (failed) return path.string() + ": cannot be read: " + failed.message();
  if (bytes != file.bytes)
    return path.string() + ": has " + std::to_string(bytes) + " bytes, not the " +
           std::to_string(file.bytes) + " that are listed";
  const bool same = measured(folder, file.name, 0, progress).sha256 == file.sha256;
  return same ? "" : path.string() + ": does not match its sha256";
}

}  // namespace

std::string manifest_of(const std::string& folder, const std::string& except, const std::string& licence,
                        std::uint64_t part_bytes, Progress& progress) {
  std::error_code failed;
  std::vector<std::string> names;
  for (const fs::path& path : entries_of(folder, failed)) {
    const std::string name = path.filename().string();
    if (name == except || name_when_whole(name)) continue;
    if (!fs::is_regular_file(path))
      input_error("is no file", path.string(),
                  "A manifest lists the files of one folder: move it elsewhere.");
    const std::uint64_t bytes = fs::file_size(path);
    if (part_bytes > 0 && bytes / part_bytes >= kMostParts)
      usage_error("would have more than 1000 parts", path.string(), "Name a longer --part.");
    progress.total += bytes;
    names.push_back(name);
  }
  if (failed) input_error("cannot be listed: " + failed.message(), folder);
  if (names.empty()) input_error("holds no files", folder);
  boost::json::array files;
  for (const std::string& name : names)
    files.emplace_back(manifest_json(measured(folder, name, part_bytes, progress)));
  boost::json::object page{{"format", kManifestFormat}, {"version", 1}, {"licence", licence}};
  // A line for each file, so that a change of the set is easy to see.
  std::string out = boost::json::serialize(page);
  out.replace(out.size() - 1, 1, ",\"files\":[");
  for (std::size_t i = 0; i < files.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + boost::json::serialize(files[i]);
  return out + "\n]}\n";
}

std::vector<ManifestFile> read_manifest(const std::string& path) {
  const boost::json::value page =
      parse_strict_json(read_regular_file(path, kMostManifestBytes), path, 8 * kMostListed);
  const JsonObject object(page, path);
  if (object.text_or("format", "") != kManifestFormat || object.integer("version", 1, 1) != 1)
    input_error("is no manifest", path, "kvsim trace manifest writes one.");
  std::vector<ManifestFile> files;
  for (const boost::json::value& file : object.array("files"))
    files.push_back(listed(file, object.path("files"), true));
  return files;
}

FoundFile check_listed(const std::string& folder, const ManifestFile& file, Progress& progress) {
  const auto here = [&](const ManifestFile& each) { return fs::exists(fs::path(folder) / each.name); };
  FoundFile found{.whole = here(file) || std::none_of(file.parts.begin(), file.parts.end(), here),
                  .problems = {}};
  const auto check = [&](const ManifestFile& each) {
    const std::string problem = difference(folder, each, progress);
    if (!problem.empty()) found.problems.push_back(problem);
  };
  if (found.whole) {
    check(file);
  } else {
    for (const ManifestFile& part : file.parts) check(part);
  }
  return found;
}

}  // namespace kvsim::trace
