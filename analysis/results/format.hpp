#pragma once
/// What a result is written as.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::analysis {

/// table is for people: rounded, only what differs. The others are for machines and have everything; their
/// numbers are shortest-exact, so equal results are equal bytes. md is a GitHub table, h5 is no text.
enum class Format { table, csv, json, jsonl, md, h5 };
/// Throws Error(usage) with the nearest names.
Format parse_format(std::string_view name);
/// What it knows: as --format takes them, and as names of files end.
std::vector<std::string> format_names();

}  // namespace kvsim::analysis
