#include "traces/format/marked_copy.hpp"

#include "sim/base/error.hpp"
#include "traces/format/hdf5_output.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {

void write_marked_copy(const std::string& original, const std::string& path,
                       const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       bool overwrite) {
  // Opening the trace checks its structure before libhdf5 changes the copy.
  const std::unique_ptr<Source> source = open_trace(original);
  if (source->header().n_tokens() != token_flags.size()) bug("flags for another number of tokens", original);
  hdf5::OutputFile file(path, overwrite, original);
  {
    const hdf5::Session session;
    const std::string where = path + ":/tokens";
    const hdf5::Object tokens(
        hdf5::check(H5Oopen(file.id(), "/tokens", H5P_DEFAULT), "cannot be opened", where));
    hdf5::replace_list(tokens.id(), "flags", token_flags, where);
    hdf5::replace(tokens.id(), "flags_known", flags_known, where);
  }
  source->require_unchanged();
  file.commit();
}

}  // namespace kvsim::trace
