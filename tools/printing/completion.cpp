#include "tools/printing/completion.hpp"

#include "sim/base/message_text.hpp"

namespace kvsim::tools {
namespace {

// What both scripts say of values.

/// What completes a value, as the scripts name it: "@policies", "@files", "@none", or words with spaces
/// between.
std::string value_name(const Completed& completed) {
  switch (completed.kind) {
    case Completed::Kind::words:
      return joined(completed.words, " ");
    case Completed::Kind::policies:
      return "@policies";
    case Completed::Kind::models:
      return "@models";
    case Completed::Kind::machines:
      return "@machines";
    case Completed::Kind::files:
      return "@files";
    case Completed::Kind::traces:
      return "@traces";
    case Completed::Kind::studies:
      return "@studies";
    case Completed::Kind::folders:
      return "@folders";
    case Completed::Kind::nothing:
      break;
  }
  return "@none";
}

/// What may stand right behind a command's name, and what after other arguments.
std::string first_value(const DescribedCommand& command) {
  if (!command.commands.empty()) return joined(command.commands, " ");
  return command.positionals.empty() ? "@none" : value_name(command.positionals.front().completed);
}

std::string later_value(const DescribedCommand& command) {
  if (!command.commands.empty()) return joined(command.commands, " ");
  return command.positionals.empty() ? "@none" : value_name(command.positionals.back().completed);
}

/// Which options ("kvsim replay --policy") take which values: by value_name().
std::map<std::string, std::vector<std::string>> options_by_value(
    const std::vector<DescribedCommand>& commands) {
  std::map<std::string, std::vector<std::string>> out;
  for (const DescribedCommand& command : commands)
    for (const DescribedOption& option : command.options)
      if (!option.value.empty())
        for (const std::string& name : option.names)
          out[value_name(option.completed)].push_back(command.name + ' ' + name);
  return out;
}

/// One of the names, as `case` takes it.
std::string patterns(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(shell_quoted(name));
  return joined(out, " | ");
}

constexpr const char* kBashBegin = R"(# bash completion of kvsim, written by `kvsim completion bash`.

# Completes $1: words, or @ and what they are the names of.
_kvsim_reply() {
  local words=$1
  case $1 in
    @none) return ;;
    @files) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    @folders) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    @traces) mapfile -t COMPREPLY < <(compgen -f -X '!*.h5' -- "$cur"; compgen -d -- "$cur") ;;
    @studies) mapfile -t COMPREPLY < <(compgen -f -X '!*.json' -- "$cur"; compgen -d -- "$cur") ;;
    @models | @machines) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
  esac
  case $1 in
    @policies)
      # What follows a + is an allocation.
      if [[ $cur == *+* ]]; then
        mapfile -t COMPREPLY < <(compgen -P "${cur%+*}+" -W "$_kvsim_allocations" -- "${cur##*+}")
        return
      fi
      words=$_kvsim_policies ;;
    @models) words=$_kvsim_models ;;
    @machines) words=$_kvsim_machines ;;
    @*) compopt -o filenames 2> /dev/null; return ;;
  esac
  local -a named
  mapfile -t named < <(compgen -W "$words" -- "$cur")
  COMPREPLY=("${named[@]}" "${COMPREPLY[@]}")
}

_kvsim() {
  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} at=kvsim i
  COMPREPLY=()
  # --format=csv arrives as three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$at ${COMP_WORDS[i]}" in
)";

constexpr const char* kBashEnd = R"(  esac
  if [[ -n $value ]]; then
    _kvsim_reply "$value"
  elif [[ $cur == -* ]]; then
    _kvsim_reply "$options"
  elif [[ $previous == "${at##* }" ]]; then
    _kvsim_reply "$first"
  else
    _kvsim_reply "$later"
  fi
}

complete -F _kvsim kvsim
)";

std::string words_of(const char* name, const std::vector<std::string>& words) {
  return std::string(name) + "=" + shell_quoted(joined(words, " ")) + '\n';
}

}  // namespace

std::string bash_completion(Command root) {
  const std::vector<DescribedCommand> commands = described_commands(root);
  std::string out = kBashBegin;
  std::vector<std::string> below;
  for (const DescribedCommand& command : commands)
    if (!command.parent.empty() && command.name != "kvsim help" && command.name != "kvsim man")
      below.push_back(command.name);
  out += "      " + patterns(below) + ") at+=\" ${COMP_WORDS[i]}\" ;;\n";
  out += "    esac\n  done\n  local options= first= later= value=\n  case \"$at\" in\n";
  for (const DescribedCommand& command : commands) {
    std::vector<std::string> options;
    for (const DescribedOption& option : command.options)
      options.insert(options.end(), option.names.begin(), option.names.end());
    out += "    " + shell_quoted(command.name) + ")\n      options=" + shell_quoted(joined(options, " ")) +
           "\n      first=" + shell_quoted(first_value(command)) +
           " later=" + shell_quoted(later_value(command)) + " ;;\n";
  }
  out += "  esac\n  case \"$at $previous\" in\n";
  for (const auto& [value, options] : options_by_value(commands))
    out += "    " + patterns(options) + ") value=" + shell_quoted(value) + " ;;\n";
  out += kBashEnd;
  return words_of("_kvsim_policies", policy_words()) + words_of("_kvsim_allocations", allocation_words()) +
         words_of("_kvsim_models", model_words()) + words_of("_kvsim_machines", machine_words()) + out;
}

namespace {

constexpr const char* kZshBegin = R"(#compdef kvsim
# zsh completion of kvsim, written by `kvsim completion zsh`.

# Completes $1: words, or @ and what they are the names of.
_kvsim_reply() {
  case $1 in
    @none) ;;
    @files) _files ;;
    @folders) _files -/ ;;
    @traces) _files -g '*.h5' ;;
    @studies) _files -g '*.json' ;;
    @policies)
      # What follows a + is an allocation.
      if compset -P '*+'; then compadd -a _kvsim_allocations; else compadd -a _kvsim_policies; fi ;;
    @models) compadd -a _kvsim_models; _files ;;
    @machines) compadd -a _kvsim_machines; _files ;;
    *) compadd -- ${=1} ;;
  esac
}

_kvsim() {
  local at=kvsim value= first= later= word previous=${words[CURRENT-1]}
  local -a options commands
  # --format=csv is one word.
  if [[ ${words[CURRENT]} == --*=* ]]; then
    previous=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  for word in ${words[2,CURRENT-1]}; do
    case "$at $word" in
)";

constexpr const char* kZshEnd = R"(  esac
  if [[ -n $value ]]; then
    _kvsim_reply "$value"
  elif [[ ${words[CURRENT]} == -* ]]; then
    _describe -o option options
  elif (( ${#commands} )); then
    _describe command commands
  elif [[ $previous == ${at##* } ]]; then
    _kvsim_reply "$first"
  else
    _kvsim_reply "$later"
  fi
}

if [[ ${funcstack[1]} == _kvsim ]]; then _kvsim "$@"; else compdef _kvsim kvsim; fi
)";

/// "name:help" for _describe, which reads \: as a colon of the name.
std::string described(const std::string& name, const std::string& help) {
  return shell_quoted(name + ':' + help);
}

std::string array_of(const char* name, const std::vector<std::string>& words) {
  std::string out = std::string("typeset -ga ") + name + '\n' + name + "=(";
  for (std::size_t i = 0; i < words.size(); ++i) out += (i > 0 ? " " : "") + words[i];
  return out + ")\n";
}

}  // namespace

std::string zsh_completion(Command root) {
  const std::vector<DescribedCommand> commands = described_commands(root);
  std::vector<std::string> below;
  for (const DescribedCommand& command : commands)
    if (!command.parent.empty() && command.name != "kvsim help" && command.name != "kvsim man")
      below.push_back(command.name);
  std::string body =
      "      " + patterns(below) + ") at+=\" $word\" ;;\n    esac\n  done\n  case \"$at\" in\n";
  for (const DescribedCommand& command : commands) {
    body += "    " + shell_quoted(command.name) + ")\n      options=(";
    for (const DescribedOption& option : command.options)
      for (const std::string& name : option.names) body += "\n        " + described(name, option.help);
    body += ")\n      commands=(";
    for (const DescribedCommand& other : commands)
      if (other.parent == command.name) body += "\n        " + described(other.last_name(), other.help);
    body += ")\n      first=" + shell_quoted(first_value(command)) +
            " later=" + shell_quoted(later_value(command)) + " ;;\n";
  }
  body += "  esac\n  case \"$at $previous\" in\n";
  for (const auto& [value, options] : options_by_value(commands))
    body += "    " + patterns(options) + ") value=" + shell_quoted(value) + " ;;\n";
  // #compdef must be the first line.
  const std::string begin = kZshBegin;
  const std::size_t head = begin.find("\n\n") + 2;
  return begin.substr(0, head) + array_of("_kvsim_policies", policy_words()) +
         array_of("_kvsim_allocations", allocation_words()) + array_of("_kvsim_models", model_words()) +
         array_of("_kvsim_machines", machine_words()) + '\n' + begin.substr(head) + body + kZshEnd;
}

}  // namespace kvsim::tools
