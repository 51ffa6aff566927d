#pragma once
/// Reads the wanted fields of one line of JSON without building a document: a line of a long prompt has
/// thousands of ids.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::requests {

enum class FieldKind {
  whole,   ///< a whole number from 0
  real,    ///< any number
  name,    ///< a string, or a whole number as one
  ids,     ///< a list of 64-bit numbers, or of strings, of which each becomes text_id()
  wholes,  ///< a list of whole numbers
};

struct Field {
  std::string_view name;
  FieldKind kind;
  bool required = false;
};

/// Keeps its memory from line to line. Fields that were not asked for are read over, whatever they hold; a
/// null counts as absent.
class JsonFields {
 public:
  explicit JsonFields(std::vector<Field> fields);
  ~JsonFields();
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  /// Throws Error(input) at `where` for what is no JSON object, for a wanted field that occurs twice, is
  /// missing or of another kind, and for numbers that do not fit.
  template <class Where>
  void parse(std::string_view line, const Where& where) {
    if (!parse(line)) refuse(line, where());
  }

  bool has(std::size_t field) const;
  std::uint64_t whole(std::size_t field) const;
  std::uint64_t whole_or(std::size_t field, std::uint64_t absent) const {
    return has(field) ? whole(field) : absent;
  }
  double real(std::size_t field) const;
  const std::string& name(std::size_t field) const;
  /// Of a field of kind ids or wholes; nullptr where it is absent.
  const std::vector<std::uint64_t>* list(std::size_t field) const;

 private:
  class Parser;
  bool parse(std::string_view line);
  [[noreturn]] void refuse(std::string_view line, const std::string& where) const;

  std::vector<Field> fields_;
  std::unique_ptr<Parser> parser_;
};

/// The names of an object's members, in order; empty for other text.
std::vector<std::string> json_names(std::string_view line);

/// The id that a string stands for: a digest of its text. What it looks like does not count: "12", "012" and
/// "0x12" are three ids, and none of them is the number 12.
std::uint64_t text_id(std::string_view text);

}  // namespace kvsim::requests
