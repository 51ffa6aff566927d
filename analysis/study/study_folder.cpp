#include "analysis/study/study_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "analysis/results/reading/read_tables.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRows = "rows.csv.gz";
constexpr const char* kPlainRows = "rows.csv";  // as a kvsim of schema 2 called them
constexpr const char* kSkipped = "skipped.csv";
constexpr const char* kSums = "SHA256SUMS";   // of the other two, as sha256sum -c takes them
constexpr const char* kPartial = ".partial";  // of the folder of a task
constexpr std::array kMade{"report.html",         "results.csv",         "results-layer.csv.gz",
                           "results-head.csv.gz", "results-step.csv.gz", "columns.csv",
                           "prompts.jsonl"};
constexpr std::array kFolders{"tasks", "tables", "figures", "traces", "views"};
constexpr std::uint64_t kMaxTaskBytes = 1ULL << 34;

FileDescriptor opened(const std::string& folder) {
  FileDescriptor out(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out.is_open()) system_error("cannot be opened", folder);
  return out;
}

/// What lies behind a link is not the study's to remove or replace.
void refuse_links(const std::string& folder) {
  std::error_code failed;
  for (const char* name : kFolders)
    if (const fs::path path = fs::path(folder) / name; fs::is_symlink(path, failed))
      input_error("is a link, which a study does not follow", path.string(),
                  "Put a folder there, or make the whole study's folder a link.");
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> out = entries_of(folder, failed);
  if (failed && failed != std::errc::no_such_file_or_directory)
    input_error("cannot be listed: " + failed.message(), folder.string());
  return out;
}

void discard(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);  // a folder only if it is empty
}

/// A file and what killed writers left of it.
void remove_file(const fs::path& path) {
  discard(path);
  remove_leftovers(path.string());
}

void remove_task(const fs::path& folder) {
  std::error_code failed;
  if (fs::is_symlink(folder, failed)) return discard(folder);
  for (const char* name : {kRows, kPlainRows, kSkipped, kSums}) remove_file(folder / name);
  discard(folder);
}

/// Removes a file with one of these endings, or what a killed writer left of one.
void remove_made(const fs::path& path, std::initializer_list<const char*> endings) {
  const std::string whole = name_when_whole(path.native()).value_or(path.native());
  if (std::ranges::any_of(endings, [&](const char* ending) { return whole.ends_with(ending); }))
    remove_file(whole);
}

bool is_table(std::string_view file) {
  return file.ends_with(".csv") || file.ends_with(".csv.gz");
}

/// The line of kSums about a file.
std::string sum_line(const std::string& text, const std::string& name) {
  return sha256_of(text) + "  " + name + '\n';
}

/// A file of a task, verified. What a kvsim that kept no checksums saved is taken as it is.
std::string saved_text(const std::string& folder, const std::string& name) {
  const std::string path = folder + '/' + name, sums = folder + '/' + kSums;
  std::string text = read_regular_file(path, kMaxTaskBytes);
  std::error_code failed;
  if (!fs::exists(sums, failed)) return text;
  if (read_regular_file(sums, kMaxTaskBytes).find(sum_line(text, name)) == std::string::npos)
    input_error("was changed since its task finished: it does not match " + sums, path,
                "Remove the folder it lies in and go on with --resume: its task is then run again.");
  return text;
}

/// A table as it was saved. What its columns hold is seen from their fields.
Records table_at(const std::string& folder, const std::string& name, const std::vector<ColumnInfo>& columns) {
  const std::string path = folder + '/' + name;
  std::string text = saved_text(folder, name);
  if (is_gzip(text)) text = gunzipped(text, kMaxTaskBytes, path);
  Records table = parse_csv(text, path);
  const bool same =
      std::equal(table.columns.begin(), table.columns.end(), columns.begin(), columns.end(),
                 [](const ColumnInfo& mine, const ColumnInfo& other) { return mine.key == other.key; });
  if (!same)
    input_error("has other columns than this kvsim writes", path,
                "Remove the folder it lies in: its task is then run again.");
  table.columns = columns;
  return table;
}

const std::vector<ColumnInfo>& skipped_columns() {
  static const std::vector<ColumnInfo> columns{
      {"trace", "", "trace"},
      {"cut", "", "where the prompt ends; null: not about a cut"},
      {"policy", "", "composition, as a table shows it; null: not about a policy"},
      {"params", "", "composition with every effective parameter"},
      {"budget", "", "budget, as given"},
      {"analysis", "", "table of the analysis that was left out; null: not about one"},
      {"reason", "", "why there are no numbers"}};
  return columns;
}

}  // namespace

Records skipped_table(const std::vector<Skipped>& skipped) {
  Records out{skipped_columns(), {}};
  for (const Skipped& one : skipped)
    out.rows.push_back({one.trace, text_or_none(one.cut), text_or_none(one.policy), text_or_none(one.params),
                        text_or_none(one.budget), text_or_none(one.analysis), one.reason});
  return out;
}

StudyFolder::StudyFolder(const std::string& path) : path_(path) {
  make_folders(path);
  refuse_links(path);
  for (const char* name : kMade)
    if (inputs::contain(file(name)))
      usage_error("is read by this study, and would be replaced", file(name),
                  "Choose another folder with -o.");
  const auto lock = [&](const FileDescriptor& folder) {
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      usage_error("another study is at work in this folder", path, "Wait for it, or choose another with -o.");
  };
  lock_.reset(opened(path).release());
  lock(lock_);
  make_folders(path + "/tasks");
  lock(
      opened(path + "/tasks"));  // for a moment: processes of a job whose first has died may still be at work
  // What a killed run was writing.
  for (const fs::path& entry : entries(path + "/tasks"))
    if (entry.native().ends_with(kPartial)) remove_task(entry);
  remove_leftovers(file(kStudyFile));
  for (const char* name : kMade) remove_leftovers(file(name));
  for (const fs::path& entry : entries(path + "/tables"))
    if (const auto whole = name_when_whole(entry.native()); whole && is_table(*whole))
      remove_leftovers(*whole);
}

StudyFolder StudyFolder::join(const std::string& path) {
  StudyFolder out;
  out.path_ = path;
  out.lock_.reset(opened(path + "/tasks").release());
  ::flock(out.lock_.get(), LOCK_SH | LOCK_NB);  // a file system without locks has none
  return out;
}

void StudyFolder::save(const std::string& task, const Records& rows, const std::vector<Skipped>& skipped) {
  const std::string partial = task_folder(task) + kPartial;
  remove_task(partial);
  make_folders(partial);
  try {
    std::string sums;
    const auto write = [&](const char* name, const std::string& text) {
      write_atomic(partial + '/' + name, text);
      sums += sum_line(text, name);
    };
    write(kRows, gzipped(csv_text(rows)));
    write(kSkipped, csv_text(skipped_table(skipped)));
    write_atomic(partial + '/' + kSums, sums);
    keep_names(partial);
  } catch (...) {
    remove_task(partial);
    throw;
  }
  std::error_code failed;
  fs::rename(partial, task_folder(task), failed);
  if (failed) input_error("cannot be given its name: " + failed.message(), task_folder(task));
  keep_names(path_ + "/tasks");
}

Records StudyFolder::rows(const std::string& task, const std::vector<ColumnInfo>& columns) const {
  return table_at(task_folder(task), kRows, columns);
}

std::vector<Skipped> StudyFolder::skipped(const std::string& task) const {
  const auto field = [](const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    return text == nullptr ? std::string() : *text;
  };
  std::vector<Skipped> out;
  for (const std::vector<Value>& row : table_at(task_folder(task), kSkipped, skipped_columns()).rows)
    out.push_back({field(row[0]), field(row[1]), field(row[2]), field(row[3]), field(row[4]), field(row[5]),
                   field(row[6])});
  return out;
}

void StudyFolder::check(const std::string& task) const {
  for (const char* name : {kRows, kSkipped}) saved_text(task_folder(task), name);
}

void StudyFolder::forget(const std::string& trace, bool captured) {
  for (const fs::path& entry : entries(path_ + "/tasks"))
    if (entry.filename().native().starts_with(trace + '.')) remove_task(entry);
  if (!captured) return;
  for (const char* ending : {".h5", ".json"}) remove_file(file("traces/" + trace + ending));
}

void StudyFolder::make_folder_of(std::string_view name) {
  make_folders(fs::path(file(name)).parent_path().string());
}

void StudyFolder::write(std::string_view name, std::string_view text) {
  make_folder_of(name);
  write_atomic(file(name), text);
}

void StudyFolder::keep_tables(const std::vector<std::string>& names) {
  for (const fs::path& entry : entries(path_ + "/tables")) {
    const std::string file = entry.filename().string();
    const bool kept = std::ranges::find(names, file.substr(0, file.find('.'))) != names.end();
    if (is_table(file) && !kept) discard(entry);
  }
}

bool task_finished(const std::string& folder, const std::string& task) {
  std::error_code failed;
  return fs::exists(folder + "/tasks/" + task, failed);
}

bool nothing_there(const std::string& path) {
  std::error_code failed;
  if (!fs::exists(path, failed)) return true;
  if (!fs::is_directory(path, failed)) return false;
  const std::vector<fs::path> all = entries(path);
  return std::ranges::all_of(all, [&](const fs::path& entry) {
    return name_when_whole(entry.filename().native()) == kStudyFile ||
           (entry.filename() == "tasks" && fs::is_empty(entry, failed));
  });
}

bool nothing_left(const std::string& path) {
  const fs::path folder = path;
  std::error_code failed;
  return !fs::exists(folder / kStudyFile, failed) && fs::is_empty(folder / "tasks", failed) && !failed &&
         std::ranges::none_of(kMade, [&](const char* name) { return fs::exists(folder / name, failed); });
}

void remove_study(const std::string& path, const std::vector<std::string>& captured) {
  const fs::path folder = path;
  // First what says that the rest is a finished study.
  for (const char* name : kMade) remove_file(folder / name);
  for (const fs::path& entry : entries(folder / "tasks")) remove_task(entry);
  for (const fs::path& entry : entries(folder / "tables")) remove_made(entry, {".csv", ".csv.gz"});
  for (const fs::path& entry : entries(folder / "figures"))
    remove_made(entry, {".csv", ".gp", ".svg", ".png", ".pdf"});
  for (const fs::path& entry : entries(folder / "views")) remove_made(entry, {".html"});
  for (const std::string& name : captured)
    for (const char* ending : {".h5", ".json"}) remove_file(folder / "traces" / (name + ending));
  for (const char* name : {"tables", "figures", "traces", "views"}) discard(folder / name);
  remove_file(folder / kStudyFile);
}

namespace {

namespace json = boost::json;

constexpr std::uint64_t kMostTokens = 1ULL << 40;
constexpr std::size_t kMostValues = 100'000;

}  // namespace

json::object trace_entry(const StudiedTrace& trace) {
  json::array cuts;
  for (const StudiedTrace::Cut& cut : trace.cuts)
    cuts.push_back(json::object{{"cut", cut.cut}, {"prompt", cut.prompt}, {"decode", cut.decode}});
  json::object entry{
      {"name", trace.name},   {"workload", trace.workload}, {"content_sha256", trace.content_sha256},
      {"model", trace.model}, {"prompt", trace.prompt},     {"decode", trace.decode},
      {"cuts", cuts},         {"captured", trace.captured}};
  if (!trace.problem.empty()) entry["problem"] = trace.problem;
  return entry;
}

std::string record_file(const std::string& trace) {
  return "traces/" + trace + ".json";
}

std::string record_text(const StudiedTrace& trace) {
  json::object entry = trace_entry(trace);
  entry["weights_sha256"] = trace.weights_sha256;
  return readable_json(entry);
}

StudiedTrace parse_record(const std::string& text, const std::string& where) {
  const json::value document = parse_strict_json(text, where, kMostValues);
  const JsonObject entry(document, where);
  StudiedTrace out;
  out.name = entry.text("name");
  out.workload = entry.text("workload");
  out.content_sha256 = entry.text("content_sha256");
  out.model = entry.text("model");
  out.weights_sha256 = entry.text("weights_sha256");
  out.prompt = entry.integer("prompt", 0, kMostTokens);
  out.decode = entry.integer("decode", 0, kMostTokens);
  for (const json::value& each : entry.array("cuts")) {
    const JsonObject cut(each, entry.path("cuts"));
    out.cuts.push_back(
        {cut.text("cut"), cut.integer("prompt", 0, kMostTokens), cut.integer("decode", 0, kMostTokens)});
  }
  out.captured = true;
  return out;
}

}  // namespace kvsim::analysis
