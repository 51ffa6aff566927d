#include "sim/base/joined.hpp"
#include "sim/base/shell_word.hpp"
#include "tools/printing/completion.hpp"
#include "tools/printing/shell_values.hpp"

namespace kvsim::tools {
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
