// kvsim completion: a script that completes kvsim's command line in a shell.
#include <ostream>

#include "sim/base/suggest.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/completion.hpp"

namespace kvsim::tools {

void add_completion_command(Command app) {
  Command command = app.add_subcommand("completion", "Print a script that completes commands in a shell",
                                       "Examples:\n  source <(kvsim completion bash)\n"
                                       "  kvsim completion zsh > ~/.zfunc/_kvsim    # a folder of $fpath\n\n"
                                       "`cmake --install` puts both in place.\n");
  const auto shell = std::make_shared<std::string>();
  command.add_required("SHELL", *shell, "bash|zsh", "bash or zsh");
  command.callback([shell, app] {
    if (*shell != "bash" && *shell != "zsh")
      usage_error("unknown shell '" + *shell + "'", "kvsim completion", suggestion(*shell, {"bash", "zsh"}));
    front_end().results() << (*shell == "bash" ? bash_completion(app) : zsh_completion(app));
  });
}

}  // namespace kvsim::tools
