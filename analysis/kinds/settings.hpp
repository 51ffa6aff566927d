#pragma once
/// What an analysis of traces can be told besides the traces, and how it reads what it was told.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::analysis {

/// One of them, as `kvsim analyze KIND --name VALUE` and a study file take it.
struct Setting {
  std::string name{};
  std::string standard{};  ///< the default, as typed; empty: none, it may be left out
  std::string type{};      ///< what to type, for help: N, SHARE, LIST, POLICY
  std::string help{};
};

/// Settings with their values. Readers throw Error(usage) that names the setting, what stands there and what
/// is allowed; Error(bug) for a name that was not declared.
class Settings {
 public:
  /// Everything at its default.
  explicit Settings(std::vector<Setting> declared);
  /// Throws Error(usage) with the nearest names.
  void set(std::string_view name, std::string value);

  struct Entry {
    Setting setting{};
    std::string value{};
  };
  const std::vector<Entry>& entries() const { return entries_; }

  const std::string& text(std::string_view name) const;
  std::uint64_t whole(std::string_view name, std::uint64_t low, std::uint64_t high) const;
  double number(std::string_view name, double low, double high) const;
  /// Comma lists; at least one item.
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<std::uint64_t> wholes(std::string_view name, std::uint64_t low, std::uint64_t high) const;
  /// Shares written as 0.1 or 10%.
  std::vector<double> shares(std::string_view name) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace kvsim::analysis
