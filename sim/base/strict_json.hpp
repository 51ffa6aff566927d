#pragma once
/// Reads untrusted JSON: a document in which a name occurs twice, a number overflows or the size exceeds its
/// limit is refused, numbers are the nearest doubles, and errors name the wrong field. RFC 8259 does not
/// define duplicate names; Boost.JSON silently keeps the last one.
#include <boost/json/value.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace kvsim {

/// What the parser of Boost.JSON asks of a handler that limits nothing by itself.
struct NoJsonLimits {
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
};

/// Parses `text`, called `where` in messages. At most `max_values` values (members and elements included) and
/// 32 levels. Throws Error(input).
boost::json::value parse_strict_json(std::string_view text, const std::string& where, std::size_t max_values);

/// Reads one JSON object with types. A member that is null counts as absent.
class JsonObject {
 public:
  /// Throws Error(input) when `value` is not an object. `value` must outlive this.
  JsonObject(const boost::json::value& value, std::string where);

  const boost::json::object& raw() const { return *object_; }
  const std::string& where() const { return where_; }
  /// Null when absent.
  const boost::json::value* find(std::string_view key) const;
  /// Throws Error(input) when absent.
  const boost::json::value& at(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// From now on `keys`, which must outlive this, gets every key that is asked for.
  void note_asked(std::set<std::string>& keys) { asked_ = &keys; }

  /// A number written as an integer, within [low, high]; a double is refused even when integral.
  std::uint64_t integer(std::string_view key, std::uint64_t low, std::uint64_t high) const;
  std::uint64_t integer_or(std::string_view key, std::uint64_t low, std::uint64_t high,
                           std::uint64_t absent) const;
  /// Any number within [low, high].
  double number(std::string_view key, double low, double high) const;
  double number_or(std::string_view key, double low, double high, double absent) const;
  bool flag_or(std::string_view key, bool absent) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, const std::string& absent) const;
  JsonObject object(std::string_view key) const;
  const boost::json::array& array(std::string_view key) const;

  /// Returns the name of a member in messages.
  std::string path(std::string_view key) const { return where_ + " " + std::string(key); }

 private:
  const boost::json::object* object_;
  std::string where_;
  std::set<std::string>* asked_ = nullptr;
};

/// Returns an integer within [low, high]; throws Error(input) at `where` otherwise.
std::uint64_t json_integer(const boost::json::value& value, const std::string& where, std::uint64_t low,
                           std::uint64_t high);

}  // namespace kvsim
