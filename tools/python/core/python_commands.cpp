#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "policies/builtin.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/printing/visible_text.hpp"
#include "tools/python/core/python_parts.hpp"
#include "tools/python/core/python_policies.hpp"
#include "tools/signals.hpp"
#include "tools/terminal.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

/// What a command has said.
struct Answer {
  std::optional<analysis::Document> document;
  std::string text;                ///< what it printed beside
  std::vector<std::string> notes;  ///< what a person should know although nothing failed
};

class Caller final : public tools::FrontEnd {
 public:
  explicit Caller(policy::Registry registry) : registry_(std::move(registry)) {}

  const policy::Registry& policies() const override { return registry_; }
  std::ostream& results() override { return text_; }
  bool take(const analysis::Document& document) override {
    document_ = document;
    document_->console = nullptr;  // these two refer to what the command owns
    document_->page = nullptr;
    return true;
  }
  void note(const std::string& text) override { notes_.push_back(tools::visible(text)); }
  void announce(const std::string& /*lines*/) override {}
  std::shared_ptr<void> follow(Progress& progress, const std::string& label, bool /*quiet*/) override {
    const std::lock_guard lock(mutex_);
    followed_ = &progress;
    label_ = tools::visible(label);
    if (stopping_) progress.stop = true;
    return {nullptr, [this](void*) {
              const std::lock_guard inner(mutex_);
              followed_ = nullptr;
            }};
  }

  /// What is followed now, if something is: its label and finished share.
  std::optional<std::pair<std::string, double>> state() {
    const std::lock_guard lock(mutex_);
    if (followed_ == nullptr) return {};
    return std::pair{label_, followed_->share()};
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (followed_ != nullptr) followed_->stop = true;
  }
  Answer answer() && { return {std::move(document_), text_.str(), std::move(notes_)}; }

 private:
  policy::Registry registry_;
  std::ostringstream text_;
  std::optional<analysis::Document> document_;
  std::vector<std::string> notes_;
  std::mutex mutex_;
  Progress* followed_ = nullptr;  ///< guarded by mutex_, as the next two
  std::string label_;
  bool stopping_ = false;
};

/// A command in its own thread.
class Running {
 public:
  Running(Caller& caller, const std::vector<std::string>& arguments)
      : thread_([this, &caller, &arguments] {
          const tools::UseFrontEnd use(caller);
          try {
            tools::run_command(arguments);
          } catch (...) {
            failure_ = std::current_exception();
          }
          {
            const std::lock_guard lock(mutex_);
            finished_ = true;
          }
          wake_.notify_all();
        }) {}
  ~Running() { thread_.join(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  bool finished_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, time, [this] { return finished_; });
  }
  /// Once it has finished.
  const std::exception_ptr& failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool finished_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

Answer run(const std::vector<std::string>& arguments, const nb::list& policies, const nb::object& progress) {
  PolicyFailures failures;
  policy::Registry registry = policy::builtin();
  for (const nb::handle given : policies) registry.add(policy_spec(given, failures));
  Caller caller(std::move(registry));
  std::exception_ptr failure, interruption;
  {
    const nb::gil_scoped_release released;
    Running running(caller, arguments);
    while (!running.finished_within(std::chrono::milliseconds(interruption ? 1000 : 50))) {
      if (interruption) continue;
      try {
        const nb::gil_scoped_acquire acquired;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (const auto state = caller.state(); state && !progress.is_none())
          progress(state->first, state->second);
      } catch (...) {
        interruption = std::current_exception();
        caller.stop();
      }
    }
    failure = running.failure();
  }
  if (interruption) std::rethrow_exception(interruption);
  failures.raise();
  if (failure) std::rethrow_exception(failure);
  return std::move(caller).answer();
}

nb::list traces_of(const analysis::Document& document) {
  nb::list out;
  for (const analysis::TraceId& trace : document.traces) {
    nb::dict entry;
    entry["name"] = trace.name;
    entry["content_sha256"] = trace.content_sha256;
    entry["prompt"] = trace.prompt;
    entry["decode"] = trace.decode;
    entry["cut"] = trace.cut;
    out.append(entry);
  }
  return out;
}

nb::dict settings_of(const analysis::Document& document) {
  nb::dict out;
  for (const auto& [name, value] : document.settings) {
    const nb::str key(name.data(), name.size());
    if (const auto* text = std::get_if<std::string>(&value)) out[key] = *text;
    if (const auto* count = std::get_if<std::uint64_t>(&value)) out[key] = *count;
    if (const auto* real = std::get_if<double>(&value)) out[key] = *real;
  }
  for (const auto& [name, items] : document.lists) out[nb::str(name.data(), name.size())] = items;
  return out;
}

}  // namespace

void bind_commands(nb::module_& module) {
  nb::class_<Answer>(module, "Answer", "What a command has said.")
      .def(
          "take_records",
          [](Answer& answer) -> nb::object {
            if (!answer.document) return nb::none();
            return nb::cast(std::exchange(answer.document->records, {}));
          },
          "The rows, once: they may be many, and are not copied.")
      .def_prop_ro(
          "analysis",
          [](const Answer& answer) { return answer.document ? answer.document->analysis : std::string(); })
      .def_prop_ro(
          "traces",
          [](const Answer& answer) { return answer.document ? traces_of(*answer.document) : nb::list(); })
      .def_prop_ro(
          "settings",
          [](const Answer& answer) { return answer.document ? settings_of(*answer.document) : nb::dict(); })
      .def_ro("text", &Answer::text)
      .def_ro("notes", &Answer::notes);
  module.def(
      "run_at_terminal",
      [](const std::vector<std::string>& arguments) {
        const nb::gil_scoped_release released;
        tools::handle_signals();
        return tools::run_at_terminal(arguments);
      },
      nb::arg("arguments"), "The command itself: prints, takes over signals, and returns the exit code.");
  module.def("run", run, nb::arg("arguments"), nb::arg("policies"), nb::arg("progress").none(),
             "Runs a command and returns its Answer.");
}

}  // namespace kvsim::python
