#pragma once
/// What policies written in Python share: what they declare, the object that serves a unit, the prompt as
/// they see it, and what becomes of their exceptions.
#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/api/spec.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "sim/base/error.hpp"

namespace kvsim::python {

/// The first exception that a policy written in Python has thrown during a run.
class PolicyFailures {
 public:
  /// Keeps it, and throws Error(usage), which ends the run. Takes the interpreter's lock.
  [[noreturn]] void keep(const std::string& where, nanobind::python_error& error);
  /// Throws PolicyError with that exception as its cause, and forgets it; nothing if there is none. With the
  /// interpreter's lock.
  void raise();

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  nanobind::object exception_;
};

/// A number of a class: fixed, or what a parameter says.
struct DeclaredCount {
  std::size_t fixed = 0;
  std::string param{};

  std::size_t of(const policy::Params& params) const { return param.empty() ? fixed : params.count(param); }
};

/// What a class declares (`_declaration()` of kvsim._policies), read once.
struct Declaration {
  std::string name, kind;
  std::shared_ptr<nanobind::object> written;  ///< the class
  DeclaredCount rows;                         ///< how many of the last prompt rows it reads
  bool sums = false;                          ///< it reads the attention of all rows, in sum
  bool keys = false, values = false, queries = false;
  bool has_observe = false;           ///< of a score policy: it changes scores while tokens are generated
  bool has_profile = false;           ///< of an allocation: it measures lanes
  bool inexact = false;               ///< of an allocation: its total may be another than was asked for
  bool scores = false;                ///< of an allocation: it reads the eviction's scores
  DeclaredCount exact;                ///< of a representation: so many of the latest tokens stay as they come
  DeclaredCount block;                ///< of a representation: so many tokens are coded at once, at least 1
  bool has_prepare = false;           ///< of a representation: it learns from the prompt
  double make_ops = 0, read_ops = 0;  ///< of a representation: operations for a number
  PolicyFailures* failures = nullptr;

  policy::Needs needs(const policy::Params& params) const;
  /// "name: layer 0, KV head 1: method()".
  std::string place(const policy::CacheUnit& unit, const char* method) const;
  /// What `work` returns, with the interpreter's lock. What it raises is kept as of `where`, and ends the
  /// run.
  template <class Work>
  auto with_python(const std::string& where, const Work& work) const {
    const nanobind::gil_scoped_acquire lock;
    try {
      return work();
    } catch (nanobind::python_error& error) {
      failures->keep(where, error);
    }
  }
  /// A new object with the parameters and, of a unit, its shape as attributes. With the interpreter's lock.
  nanobind::object instance(const policy::Params& params, const policy::CacheUnit* unit) const;
  /// The same with attributes that the caller chooses.
  nanobind::object instance(const policy::Params& params, const nanobind::dict& shape) const;
};
using SharedDeclaration = std::shared_ptr<const Declaration>;

/// A reference that may be dropped in any thread.
std::shared_ptr<nanobind::object> held(nanobind::object object);
/// str(object).
std::string text_of(nanobind::handle object);

/// A copy, [rows, cols].
nanobind::object copied(const MatrixView& matrix);

/// `returned` as a NumPy array of type "float32" or "float64". Throws Error(usage), placed at `where`, for
/// complex numbers.
nanobind::object real_array(nanobind::handle returned, const char* type, const std::string& where);

/// `returned` as doubles. Throws Error(usage), placed at `where`, unless it is an array of one dimension, of
/// `wanted` numbers (0: of any) that are not NaN; `hint` says what it should be.
std::vector<double> doubles_from(const nanobind::object& returned, std::size_t wanted,
                                 const std::string& where, const char* hint);

/// Collects of a prompt what a policy has declared to read, and hands it over.
class PromptRecorder {
 public:
  PromptRecorder(SharedDeclaration declaration, const policy::Params& params, const policy::CacheUnit& unit);

  // As of policy::PromptObserver.
  std::size_t prompt_rows() const { return declaration_->sums ? policy::kAllRows : window_; }
  std::size_t rows_beside_columns() const { return window_; }
  void observe_columns(const policy::PromptColumns& columns);
  void observe(const policy::PromptRows& block);
  /// Calls a method with the prompt, which is gone for it afterwards. With the interpreter's lock.
  nanobind::object call(nanobind::handle object, const char* method, const policy::Prompt& prompt);

 private:
  SharedDeclaration declaration_;
  policy::CacheUnit unit_;
  std::size_t window_;
  std::vector<float> rows_;  ///< [query heads, window, prompt]
  policy::ColumnSums sums_;
};

/// What a policy, or a part of one, has from its class: the prompt is observed for it. `Base`: the kind of
/// PromptObserver that it is.
template <class Base>
class Recording : public Base {
 public:
  std::size_t prompt_rows() const override { return recorder_.prompt_rows(); }
  std::size_t rows_beside_columns() const override { return recorder_.rows_beside_columns(); }
  void observe_columns(const policy::PromptColumns& columns) override { recorder_.observe_columns(columns); }
  void observe(const policy::PromptRows& block) override { recorder_.observe(block); }

 protected:
  template <class... Arguments>
  Recording(SharedDeclaration declaration, const policy::Params& params, const policy::CacheUnit& unit,
            const Arguments&... of_base)
      : Base(of_base...),
        declaration_(std::move(declaration)),
        params_(params),
        recorder_(declaration_, params, unit) {}

  SharedDeclaration declaration_;
  policy::Params params_;
  PromptRecorder recorder_;
};

/// The spec of a class of kvsim._policies. `failures` must outlive what it makes. Throws Error(usage) for a
/// name that is taken.
policy::PolicySpec policy_spec(nanobind::handle written, PolicyFailures& failures);

// One file for each kind; each completes a spec whose name, texts and own parameters are there.
void complete_score_policy(policy::PolicySpec& spec, const SharedDeclaration& declaration);
void complete_allocation(policy::PolicySpec& spec, const SharedDeclaration& declaration);
void complete_representation(policy::PolicySpec& spec, const SharedDeclaration& declaration);

/// Adds the classes that are handed to policies.
void bind_policies(nanobind::module_& module);
void bind_score_policies(nanobind::module_& module);
void bind_allocations(nanobind::module_& module);

}  // namespace kvsim::python
