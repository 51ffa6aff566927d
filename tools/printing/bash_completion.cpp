#include "sim/base/joined.hpp"
#include "sim/base/shell_word.hpp"
#include "tools/printing/completion.hpp"
#include "tools/printing/shell_values.hpp"

namespace kvsim::tools {
namespace {

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

}  // namespace kvsim::tools
