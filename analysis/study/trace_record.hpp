#pragma once
/// What a study knows of a trace: as study.json lists it, and as it is kept of a captured trace whose file
/// was removed once every task of it had finished (capture.keep_traces).
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::analysis {

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
