#pragma once
/// What a machine is short of: memory, threads, processes, open files. No fault of a file, of the request or
/// of kvsim, so it has an exit code of its own, and no verdict about an input is made of it.
#include <exception>
#include <optional>
#include <string_view>

#include "sim/base/error.hpp"

namespace kvsim {

inline constexpr ErrorKind kShortage{6};

/// Throws the Error of a lack that an errno tells; nothing for another errno.
void refuse_shortage(int code, std::string_view what, std::string_view where);

/// The Error that an exception of the standard library means: bad_alloc, length_error (a container of more
/// bytes than there are addresses), or an error of it or of oneTBB about threads. None: it is about something
/// else.
std::optional<Error> shortage_of(const std::exception& error);

}  // namespace kvsim
