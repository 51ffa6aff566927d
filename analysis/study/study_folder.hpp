#pragma once
/// The folder of a study: finished tasks, kept one by one, and the files made from them
/// (analysis/study/STUDIES.md). Whatever stands under its final name is complete.
#include <boost/json/value.hpp>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/base/files.hpp"

namespace kvsim::analysis {

inline constexpr const char* kStudyFile = "study.json";  ///< of the folder

/// Why something has no numbers.
struct Skipped {
  std::string trace{}, cut{}, policy{}, params{}, budget{}, analysis{};  ///< of what; empty: all of them
  std::string reason{};
  auto operator<=>(const Skipped&) const = default;
};
Records skipped_table(const std::vector<Skipped>& skipped);

class StudyFolder {
 public:
  /// The folder is made if it is not there, and locked against other processes as long as this lives. Throws
  /// Error(usage) when another study runs in it or a file that it would replace is read, Error(input) when it
  /// cannot be made or a folder in it is a link.
  explicit StudyFolder(const std::string& path);
  /// The folder of a study that another process of the same job has begun: nothing in it is cleaned, and no
  /// other study begins in it as long as this lives, even if that process dies. Throws Error(input).
  static StudyFolder join(const std::string& path);

  std::string file(std::string_view name) const { return path_ + '/' + std::string(name); }

  /// What a task found, all of it or nothing, and the checksums of its files.
  void save(const std::string& task, const Records& rows, const std::vector<Skipped>& skipped);
  /// Throws Error(input) if a file of a finished task was changed, as rows() and skipped() do.
  void check(const std::string& task) const;
  Records rows(const std::string& task, const std::vector<ColumnInfo>& columns) const;
  std::vector<Skipped> skipped(const std::string& task) const;

  /// Removes what was found of a trace of this name and, if `captured`, the trace.
  void forget(const std::string& trace, bool captured);

  /// Makes the folder that a file will lie in. Throws Error(input), as write() does.
  void make_folder_of(std::string_view name);
  /// A file of the folder, in one piece.
  void write(std::string_view name, std::string_view text);
  /// Exactly these tables: others of tables/ go.
  void keep_tables(const std::vector<std::string>& names);

 private:
  StudyFolder() = default;
  std::string task_folder(const std::string& task) const { return path_ + "/tasks/" + task; }

  std::string path_;
  FileDescriptor
      lock_;  ///< of the folder, or of its tasks/ for one that has joined; closing it ends the lock
};

/// Whether a task of the study in a folder is finished.
bool task_finished(const std::string& folder, const std::string& task);

/// Whether there is nothing at `path`, or a folder with nothing in it but what a study that was killed at
/// once leaves: an empty tasks/ and a study.json that was not finished.
bool nothing_there(const std::string& path);

/// Whether a study at `path` was killed while it started anew: what it wrote is gone, and of what others
/// wrote there is something left.
bool nothing_left(const std::string& path);

/// Removes what a study wrote into `path`, and of traces/ those called `captured`. What else lies there
/// stays, and an empty tasks/, which tells the folder from one that never was a study's.
void remove_study(const std::string& path, const std::vector<std::string>& captured);

// What a study knows of a trace: as study.json lists it, and as it is kept of a captured trace whose file
// was removed once every task of it had finished (capture.keep_traces).

/// What a study knows of a trace once its tasks have run.
struct StudiedTrace {
  std::string name, content_sha256, workload, model, weights_sha256;
  std::uint64_t prompt = 0, decode = 0;  ///< as recorded
  /// Tokens before and behind each cut that was studied.
  struct Cut {
    std::string cut;
    std::uint64_t prompt = 0, decode = 0;
  };
  std::vector<Cut> cuts{};
  bool captured = false;  ///< by the study itself
  std::string problem;    ///< why it is left out; empty: it is not
};

boost::json::object trace_entry(const StudiedTrace& trace);

/// The file of the folder that stands for a trace whose own is gone.
std::string record_file(const std::string& trace);
/// Its text, and what it says. The latter throws Error(input) at `where` for text that is no such record.
std::string record_text(const StudiedTrace& trace);
StudiedTrace parse_record(const std::string& text, const std::string& where);

}  // namespace kvsim::analysis
