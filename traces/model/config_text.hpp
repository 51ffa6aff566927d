#pragma once
/// The JSON of a model's folder as Python writes it.
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace kvsim::model {

/// parse_strict_json(), but the words Infinity and -Infinity, which Python writes and JSON does not have
/// (time_step_limit of Nemotron-H), are numbers of +-1e308. Throws Error(input).
boost::json::value parse_config_text(std::string_view text, const std::string& where);

}  // namespace kvsim::model
