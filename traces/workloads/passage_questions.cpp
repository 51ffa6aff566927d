#include "traces/workloads/passage_questions.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/workloads/passages.hpp"

namespace kvsim::workload {

const std::vector<PassageQuestion>& passage_questions() {
  static const std::vector<PassageQuestion> kAll{
      {"windows",
       "Windows historically has limited",
       "To how many characters has Windows historically limited path lengths?",
       {"260"}},
      {"windows",
       "this limitation can be expanded to",
       "To approximately how many characters can the limit of path lengths be expanded?",
       {"32,000", "32000"}},
      {"windows",
       "If you require Windows 7",
       "Which version of Python should be installed for Windows 7 support?",
       {"3.8"}},
      {"windows",
       "is intended mainly for interactive use",
       "For what kind of use is the Microsoft Store package mainly intended?",
       {"interactive"}},
      {"windows",
       "Ensure that the app",
       "By whom must the Python app in the Microsoft Store be published?",
       {"Python Software Foundation"}},
      {"windows",
       "The options listed above can also be provided",
       "In a file of which name can the options of the installer be provided?",
       {"unattend.xml"}},
      {"windows",
       "To completely hide the installer UI",
       "Which option completely hides the user interface of the installer?",
       {"/quiet"}},
      {"windows",
       "Once Python has been installed",
       "Through which tool of Windows can features be added or removed once Python has been installed?",
       {"Programs and Features"}},
      {"windows",
       "It requires Windows 10 and above",
       "Which version of Windows does the simple installation from the Microsoft Store require?",
       {"Windows 10"}},
      {"logging_handlers",
       "The base class uses a TCP socket",
       "Which type of socket does the base class of SocketHandler use?",
       {"TCP"}},
      {"logging_handlers",
       "It is essentially a 'no-op' handler",
       "For use by whom is the NullHandler class?",
       {"library developer"}},
      {"logging_handlers",
       "This handler is not appropriate for use under",
       "Why can open log files not be moved or renamed under Windows: with which kind of locks does logging "
       "open them?",
       {"exclusive"}},
      {"logging_handlers",
       "When using weekday-based rotation",
       "Which value stands for Monday in weekday-based rotation?",
       {"W0"}},
      {"logging_handlers",
       "The extensions are date-and-time based",
       "Which format do the date-and-time based extensions of old log files use?",
       {"strftime", "%Y-%m-%d"}},
      {"logging_handlers",
       "If the *utc* argument is true",
       "Which time is used for rotation if the utc argument is not true?",
       {"local"}},
      {"logging_handlers",
       "When this file is filled, it is closed",
       "What is app.log renamed to when it is filled?",
       {"app.log.1"}},
      {"dataclasses",
       "It was originally described",
       "In which PEP was the module for data classes originally described?",
       {"557"}},
      {"dataclasses",
       "The member variables to use in these",
       "Which PEP defines the type annotations by which member variables are defined?",
       {"526"}},
      {"runpy",
       "Its main use is to implement the",
       "Which command line switch is implemented by the runpy module?",
       {"-m"}},
      {"runpy",
       "If that limitation is not acceptable",
       "Which module is a more suitable choice than runpy if its limitation is not acceptable?",
       {"importlib"}},
      {"runpy",
       "PEP written and implemented by Nick",
       "Who wrote and implemented the PEP about main module explicit relative imports?",
       {"Coghlan"}},
      {"runpy",
       "PEP written and implemented by Eric",
       "Who wrote and implemented the PEP about a ModuleSpec type for the import system?",
       {"Eric Snow"}},
      {"enum",
       "defaults to the lower-cased version",
       "To which version of the member name does StrEnum default?",
       {"lower"}},
      {"expressions",
       "When a name is not bound",
       "Which exception is raised by an attempt to evaluate a name that is not bound?",
       {"NameError"}},
      {"expressions",
       "the execution proceeds to the first",
       "To which kind of expression does the execution of a generator function first proceed, where it is "
       "suspended again?",
       {"yield"}},
      {"expressions",
       "Some additional rules apply for certain",
       "Additional rules apply to a string as a left argument of which operator?",
       {"%"}},
  };
  return kAll;
}

std::string paragraph_of(const PassageQuestion& question) {
  const std::vector<Passage>& all = builtin_passages();
  const auto passage = std::find_if(all.begin(), all.end(),
                                    [&](const Passage& each) { return each.name == question.passage; });
  if (passage == all.end()) bug("a question about no passage", question.passage);
  const std::string& text = passage->text;
  const std::size_t at = text.find(question.clue);
  if (at == std::string::npos) bug("a question without its paragraph", question.question);
  std::size_t begin = text.rfind("\n\n", at), end = text.find("\n\n", at);
  begin = text.find_first_not_of(" \n", begin == std::string::npos ? 0 : begin);
  return text.substr(begin, (end == std::string::npos ? text.size() : end) - begin);
}

}  // namespace kvsim::workload
