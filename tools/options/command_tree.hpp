#pragma once
/// Commands and their options, as the commands describe them. Behind it is CLI11, which takes a compiler
/// seconds to read: so its header is for this header's own file and those that print help.
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvsim::tools {

/// What the text of a value must be. `holds` returns what is wrong, or nothing, and may change the text.
struct Check {
  std::function<std::string(std::string&)> holds;
  std::string shown{};  ///< by the help, behind the type
};

/// One of `words`; the help shows them unless they are `hidden`, because the type's name says them.
Check one_of(std::initializer_list<std::string> words);
Check hidden(Check check);
/// T: unsigned, std::uint64_t or double. Both ends are allowed.
template <class T>
Check between(T low, T high);

/// An option of a command. Copies are the same option.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  const Option& group(const std::string& name) const;
  const Option& required() const;
  const Option& check(const Check& check) const;
  const Option& default_str(const std::string& text) const;
  const Option& needs(const Option& other) const;
  const Option& needs(const std::string& name) const;
  const Option& excludes(const Option& other) const;
  const Option& excludes(const std::string& name) const;
  const Option& delimiter(char mark) const;
  /// It takes all words up to the next option.
  const Option& takes_all_words() const;
  bool is_required() const;
  /// Whether the command line lacks it.
  bool empty() const;

 private:
  CLI::Option* option_;
};

/// A command. Copies are the same command.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}
  /// The same command; what options are added through this copy stand in that group of the help.
  Command in_group(const std::string& name) const;
  /// At most four examples begin the footer; without one it is that of the command above.
  Command add_subcommand(const std::string& name, const std::string& help,
                         const std::optional<std::string>& footer = {}) const;
  /// T: text, numbers, lists and optionals of them, as command_tree.cpp names them. A name that does not
  /// begin with a hyphen is the word's place on the line. The value is what `check` makes of the text;
  /// without one, whole numbers are checked. `type` is what the help calls the value; empty: as T is called.
  /// The help shows the default unless it says "(default: ...)" itself. An option of a list takes one word
  /// each time.
  template <class T>
  Option add_option(const std::string& names, T& value, const std::string& type, const std::string& help,
                    const Check& check = {}) const;
  /// One that the command line must have.
  template <class T>
  Option add_required(const std::string& names, T& value, const std::string& type, const std::string& help,
                      const Check& check = {}) const {
    return add_option(names, value, type, help, check).required();
  }
  Option add_flag(const std::string& names, bool& value, const std::string& help) const;
  /// One that is there.
  Option option(const std::string& name) const;
  bool has_option(const std::string& name) const;
  void callback(std::function<void()> run) const;
  /// As many as `n`, at least.
  void require_subcommand(int n) const;
  /// Words that it does not know are no error.
  void allow_extras() const;
  std::vector<Command> subcommands() const;
  std::string name() const;
  /// "kvsim cost fit": how a person calls it.
  std::string full_name() const;
  /// What --help prints.
  std::string help() const;
  CLI::App& parser() const { return *app_; }

 private:
  CLI::App* app_;
  std::string group_{};
};

/// {"cost", "fit"} is the command `kvsim cost fit`, nothing is `root`: as people say it after `kvsim help`
/// and `kvsim man`. Throws Error(usage) with the nearest names.
Command named_command(Command root, const std::vector<std::string>& names);

/// The root of all commands.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& help, const std::string& footer,
              std::string (*version)());
  ~CommandLine();
  Command root() const { return Command(*app_); }
  /// Runs the command that is asked for. What is to be printed instead, help or version, is returned. Throws
  /// Error(usage) with the nearest valid spelling.
  std::string parse(std::span<const std::string> arguments) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace kvsim::tools
