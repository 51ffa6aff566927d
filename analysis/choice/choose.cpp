#include "analysis/choice/choose.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>

#include "analysis/choice/candidates.hpp"
#include "analysis/choice/choice_report.hpp"
#include "analysis/choice/engine_recipes.hpp"
#include "analysis/choice/shared_tasks.hpp"
#include "analysis/loop/context_turns.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/split.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {
namespace {

/// Items about one context, answered together, and the size of the first one's prompt as far as the cut.
struct Context {
  std::span<const capture::WorkloadItem> items;
  PromptSize size;
  const capture::WorkloadItem& front() const { return items.front(); }
};
using Rivals = std::vector<TriedSetting*>;

constexpr const char* kChoiceFile = "choice.json";
constexpr std::size_t kLeastContexts = 8;
constexpr std::size_t kScreened = 2;    // contexts that losses are measured on
constexpr std::size_t kFirstRound = 4;  // contexts that everybody answers
constexpr std::uint64_t kMostBytes = 1 << 20;

Interval wilson(std::uint64_t right, std::uint64_t of) {
  if (of == 0) return {0, 1};
  constexpr double z = 1.959964;
  const auto n = static_cast<double>(of);
  const double share = static_cast<double>(right) / n, middle = share + z * z / (2 * n),
               half = z * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, (middle - half) / (1 + z * z / n)), std::min(1.0, (middle + half) / (1 + z * z / n))};
}

/// Everything that the folder's bytes depend on.
std::string asked_text(const ChoiceRequest& request) {
  Sha256 prompts;
  for (const capture::WorkloadItem& item : request.items) {
    const std::string line = item.id + '\0' + item.prompt + '\0';
    prompts.update(line.data(), line.size());
    for (const std::string& answer : item.answers) prompts.update(answer.data(), answer.size() + 1);
  }
  const EvaluationOptions& run = request.evaluation;
  boost::json::object asked{{"kvsim", kVersion},
                            {"model", request.model},
                            {"prompts", request.items.size()},
                            {"prompts_sha256", prompts.hex()},
                            {"cap", request.cap.text},
                            {"cut", run.cuts.front().text()},
                            {"settings", request.settings},
                            {"seed", request.seed},
                            {"max_new_tokens", run.max_new_tokens},
                            {"elem", run.elem},
                            {"prefill_chunk", run.prefill_chunk}};
  return boost::json::serialize(asked) + '\n';
}

/// Makes the folder ready, or throws.
void claim(const ChoiceRequest& request) {
  const std::size_t contexts = by_context(request.items).size();
  if (contexts < kLeastContexts)
    usage_error("a choice takes at least " + std::to_string(kLeastContexts) +
                    " prompts (contexts), of which half confirm it; there are " + std::to_string(contexts),
                "--workload", "Make more, with kvsim workload --count for example.");
  const std::string file = request.folder + '/' + kChoiceFile;
  std::error_code failed;
  if (!std::filesystem::exists(file, failed)) {
    if (!nothing_there(request.folder))
      usage_error("holds something else", request.folder, "Choose another folder with -o.");
    return;
  }
  if (!request.resume)
    usage_error("holds a choice", request.folder,
                "Go on with it: --resume, or choose another folder with -o.");
  if (read_file(file, kMostBytes) != asked_text(request))
    usage_error("was asked for with other prompts, options or another kvsim", file,
                "Ask again as it was, or choose another folder with -o.");
}

/// The folder, begun or joined.
StudyFolder opened(const ChoiceRequest& request, SharedTasks& tasks) {
  const std::string asked = asked_text(request);
  if (!tasks.leads()) {
    tasks.await_begin(request.folder + '/' + kChoiceFile, asked);
    return StudyFolder::join(request.folder);
  }
  claim(request);
  StudyFolder folder(request.folder);
  folder.write(kChoiceFile, asked);
  tasks.begin(asked);
  return folder;
}

/// Columns of what a prompt's screen found.
const std::vector<ColumnInfo>& screen_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out{{"params", "", "composition with every effective parameter"}};
    out.insert(out.end(), loss_columns().begin(), loss_columns().end());
    return out;
  }();
  return all;
}

class Run {
 public:
  Run(const ChoiceRequest& request, Evaluation& model, const policy::Registry& registry, Progress& progress,
      Ranks* ranks)
      : request_(request),
        model_(model),
        progress_(progress),
        tasks_(request.folder, ranks),
        folder_(opened(request, tasks_)) {
    for (AskedPolicy& policy : draw_settings(registry, request.settings, request.seed, true))
      tried_.push_back({std::move(policy)});
    split();
  }

  Choice choose() {
    Rivals left;
    for (TriedSetting& each : tried_) left.push_back(&each);
    Choice out;
    drop_unfitting(left);
    out.fitting = left.size();
    refuse_none(left);
    screen(left);
    out.screened = left.size();
    race(left);
    refuse_none(left);
    TriedSetting& winner = *left.front();
    out.winner = winner;
    out.found = kept_of(winner.answers);
    out.nearest = nearest();
    confirm(winner, out);
    out.tried = table_of_settings(tried_);
    if (tasks_.leads()) {
      folder_.write("tables/tried.csv", csv_text(out.tried));
      folder_.write("tables/confirmed.csv", csv_text(table_of_settings({out.confirmed})));
      folder_.write(kChoicePage, choice_page(request_, out));
    }
    return out;
  }

 private:
  void refuse_none(const Rivals& left) {
    if (!left.empty()) return;
    if (tasks_.leads()) folder_.write("tables/tried.csv", csv_text(table_of_settings(tried_)));
    usage_error("no setting fits or runs", "--memory, --share, --tpot",
                "See " + folder_.file("tables/tried.csv") + '.');
  }

  /// By chance, before anything is looked at.
  void split() {
    const auto contexts = by_context(request_.items);
    const auto contexts_of = [&](const std::vector<std::size_t>& which) {
      std::vector<Context> out;
      for (const std::size_t i : which)
        out.push_back({contexts[i], model_.prompt_size(contexts[i].front(), request_.evaluation)});
      return out;
    };
    const Split halves = split_by_chance(contexts.size(), request_.seed);
    search_ = contexts_of(halves.search);
    confirming_ = contexts_of(halves.confirm);
  }

  /// Of a context, with these cells under the cap.
  EvaluationOptions options_of(const Context& context, const Rivals& settings) const {
    EvaluationOptions out = request_.evaluation;
    out.modes = {sim::LoopMode::teacher, sim::LoopMode::greedy};
    out.seed = request_.seed;
    for (const TriedSetting* setting : settings)
      out.cells.push_back({setting->policy.composition, budget_of(*setting, context)});
    return out;
  }

  sim::Budget budget_of(const TriedSetting& setting, const Context& context) const {
    const CacheCap& cap = request_.cap;
    sim::Budget budget;
    if (cap.served) {
      const std::uint64_t tokens = fits_.at({setting.policy.composition.params, context.size.tokens});
      budget.value = static_cast<double>(tokens);
      budget.text = std::to_string(tokens);
      return budget;
    }
    budget.unit = sim::Budget::Unit::bytes;
    budget.value = cap.bytes > 0 ? static_cast<double>(cap.bytes)
                                 : std::floor(cap.share * static_cast<double>(context.size.bytes));
    budget.text = cap.text;
    return budget;
  }

  /// How many tokens of each prompt every setting may keep, the prompts that confirm included: of those the
  /// length alone is looked at.
  void price_served(Rivals& left) {
    CostStudy study = *request_.cap.served;
    study.generates = {std::max<std::uint64_t>(request_.evaluation.max_new_tokens, 2)};
    for (TriedSetting* setting : left) {
      study.policies = {setting->policy.composition};
      for (const std::vector<Context>* contexts : {&search_, &confirming_})
        for (const Context& context : *contexts) {
          std::uint64_t& tokens = fits_[{setting->policy.composition.params, context.size.tokens}];
          if (tokens > 0 || !setting->why.empty()) continue;
          study.prompts = {context.size.tokens};
          try {
            const CostFit fit = cost_fits(study, request_.cap.limits).front();
            tokens = fit.row.estimate->budget;
            if (!fit.meets) drop(*setting, "price", "its least size exceeds the limit of " + fit.limit);
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::usage) throw;
            drop(*setting, "price", error.problem());
          }
        }
    }
    keep_there(left);
  }

  /// What keeps everything either fits or does not; other evictions cut down to what does.
  void drop_unfitting(Rivals& left) {
    if (request_.cap.served) {
      price_served(left);
      return;
    }
    Rivals whole;
    for (TriedSetting* setting : left)
      if (setting->policy.composition.eviction.spec->keeps_all()) whole.push_back(setting);
    if (!whole.empty())
      for (const Context& context : search_) {
        const std::vector<bool> room = model_.room_for_all(context.front(), options_of(context, whole));
        for (std::size_t i = 0; i < whole.size(); ++i)
          if (!room[i])
            drop(*whole[i], "price", "the whole of " + context.front().id + " takes more than the cap");
      }
    keep_there(left);
  }

  void screen(Rivals& left) {
    const Context& first = search_.front();
    double share = request_.cap.share > 0
                       ? request_.cap.share
                       : static_cast<double>(request_.cap.bytes) / static_cast<double>(first.size.bytes);
    if (request_.cap.served) {
      share = 1;
      for (const TriedSetting* setting : left)
        share = std::min(share, budget_of(*setting, first).value / static_cast<double>(first.size.tokens));
    }
    const bool answers = std::all_of(search_.begin(), search_.begin() + kScreened,
                                     [](const Context& context) { return !context.front().answers.empty(); });
    if (!answers || !trusts_peak_loss(request_.evaluation.cuts.front(), share)) return;
    std::map<const TriedSetting*, std::vector<double>> losses;
    make_tasks("screen", 0, kScreened, 0, 0.1, screen_columns(), [&](std::size_t i) {
      const Context& context = search_[i];
      std::vector<std::vector<Value>> rows =
          model_.losses(context.front(), options_of(context, left), progress_);
      for (std::size_t cell = 0; cell < rows.size(); ++cell)
        rows[cell].insert(rows[cell].begin(), left[cell]->policy.composition.params);
      return rows;
    });
    for (std::size_t i = 0; i < kScreened; ++i) {
      const Records rows = folder_.rows(task_name("screen", i), screen_columns());
      const std::size_t peak = rows.column("peak_loss"), params = rows.column("params");
      for (const std::vector<Value>& row : rows.rows)
        if (const auto loss = number(row[peak])) losses[setting_of(text(row[params]), left)].push_back(*loss);
    }
    // Of those that store alike: a code loses no attention, and answers nothing for it.
    std::map<std::string, Rivals> alike;
    for (TriedSetting* setting : left) {
      const std::vector<double>& of = losses[setting];
      if (of.empty()) continue;  // answers will say why
      setting->peak_loss = std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
      const auto& stored = setting->policy.composition.representation;
      alike[stored ? stored->text() : ""].push_back(setting);
    }
    for (auto& [stored, settings] : alike) {
      std::ranges::stable_sort(settings, [](const TriedSetting* a, const TriedSetting* b) {
        return *a->peak_loss < *b->peak_loss;
      });
      for (std::size_t i = (settings.size() + 1) / 2; i < settings.size(); ++i)
        drop(*settings[i], "screen", "more peak loss than half of the settings that store alike");
    }
    keep_there(left);
  }

  void race(Rivals& left) {
    std::size_t asked = 0;
    for (std::size_t round = 1; left.size() > 1 && asked < search_.size(); ++round) {
      const std::size_t until = std::min(search_.size(), asked == 0 ? kFirstRound : 2 * asked);
      const double each = 0.8 / static_cast<double>(search_.size());
      ask("search", search_, asked, until, 0.1 + each * static_cast<double>(asked),
          each * static_cast<double>(until - asked), left);
      asked = until;
      for (TriedSetting* setting : left)
        if (setting->answers.empty() && setting->why.empty())
          drop(*setting, "round " + std::to_string(round), "answers nothing");
      keep_there(left);
      std::vector<std::vector<Answered>> answers;
      for (const TriedSetting* setting : left) answers.push_back(setting->answers);
      const std::size_t most = asked == search_.size() ? 1 : (left.size() + 1) / 2;
      Rivals next;
      for (const std::size_t i : survivors(answers, most)) next.push_back(left[i]);
      for (TriedSetting* setting : left)
        if (std::ranges::find(next, setting) == next.end())
          drop(*setting, "round " + std::to_string(round), "answers worse than what goes on");
      left = std::move(next);
    }
  }

  /// Lets settings answer some contexts, and drops those that cannot.
  void ask(const std::string& kind, const std::vector<Context>& contexts, std::size_t first, std::size_t last,
           double before, double share, Rivals& settings) {
    const std::vector<ColumnInfo> columns = columns_of(options_of(contexts[first], settings));
    make_tasks(kind, first, last, before, share, columns, [&](std::size_t i) {
      return model_.answer(contexts[i].items, options_of(contexts[i], settings), progress_);
    });
    for (std::size_t i = first; i < last; ++i)
      take_answers(task_name(kind, i), columns, static_cast<double>(contexts[i].size.tokens), settings);
    keep_there(settings);
  }

  void take_answers(const std::string& task, const std::vector<ColumnInfo>& columns, double tokens,
                    const Rivals& settings) {
    const Records rows = folder_.rows(task, columns);
    const std::size_t skipped = rows.column("skipped"), params = rows.column("params"),
                      mode = rows.column("mode"), kept = rows.column("kept"), kl = rows.column("kl"),
                      held = rows.column("held_bytes"), kept_tokens = rows.column("kept_tokens"),
                      budget = rows.column("budget_tokens");
    for (const std::vector<Value>& row : rows.rows) {
      TriedSetting& setting = *setting_of(text(row[params]), settings);
      if (!setting.why.empty()) continue;
      if (const std::string why = exact_field(row[skipped]); !why.empty()) {
        drop(setting, task, why);
      } else if (number(row[kept_tokens]).value_or(0) > number(row[budget]).value_or(0) + 0.5) {
        drop(setting, task, "holds more than the cap");
      } else if (text(row[mode]) == "teacher") {
        setting.answers.push_back({{}, number(row[kl]).value_or(0)});
      } else {
        if (const auto right = number(row[kept])) setting.answers.back().kept = *right > 0;
        if (const auto bytes = number(row[held])) setting.held_bytes.add(*bytes);
        if (const auto bought = number(row[budget]))
          setting.budget_share.add(std::min(1.0, *bought / tokens));
      }
    }
  }

  void confirm(const TriedSetting& winner, Choice& out) {
    TriedSetting& again = out.confirmed;
    again.policy = winner.policy;
    Rivals one{&again};
    ask("confirm", confirming_, 0, confirming_.size(), 0.9, 0.1, one);
    if (one.empty())
      input_error("cannot answer the prompts that confirm: " + again.why, again.policy.composition.params);
    double full = 0;
    for (const Context& context : confirming_) full += static_cast<double>(context.size.bytes);
    out.answers = kept_of(again.answers);
    out.full_bytes = full / static_cast<double>(confirming_.size());
  }

  /// Who was asked more prompts went further; among those, as survivors() orders.
  std::optional<TriedSetting> nearest() const {
    const TriedSetting* best = nullptr;
    const auto before = [](const TriedSetting& a, const TriedSetting& b) {
      if (a.answers.size() != b.answers.size()) return a.answers.size() > b.answers.size();
      return best_first({a.answers, b.answers}).front() == 0;
    };
    for (const TriedSetting& setting : tried_)
      if (!setting.answers.empty() && !engine_recipes(setting.policy.composition.params, 1).empty() &&
          (best == nullptr || before(setting, *best)))
        best = &setting;
    return best == nullptr ? std::nullopt : std::optional(*best);
  }

  static KeptAnswers kept_of(const std::vector<Answered>& answers) {
    KeptAnswers out;
    for (const Answered& answer : answers) {
      out.of += answer.kept ? 1 : 0;
      out.right += answer.kept.value_or(false) ? 1 : 0;
    }
    out.prompts = answers.size();
    out.kl = standing(answers).kl;
    out.share = wilson(out.right, out.of);
    return out;
  }

  static Records table_of_settings(const std::vector<TriedSetting>& settings) {
    Records table{
        {{"setting", "", "composition"},
         {"params", "", "the same with every effective parameter"},
         {"left", "", "when it left the search: price, screen, or after a prompt or round; null: it won"},
         {"why", "", "why it left"},
         {"peak_loss", "share", "peak loss on the screen's prompts, mean"},
         {"prompts", "prompts", "that it answered in the search"},
         {"kept", "share", "of the answers of the full cache to them, those that are right"},
         {"kl", "nats", "KL(full || setting), mean over those prompts"},
         {"held_bytes", "bytes", "keys and values held at the end, mean over those prompts"}},
        {}};
    for (const TriedSetting& setting : settings) {
      const Standing of = standing(setting.answers);
      table.rows.push_back({setting.policy.text, setting.policy.composition.params,
                            text_or_none(setting.left), text_or_none(setting.why),
                            value_of(setting.peak_loss), std::uint64_t{setting.answers.size()},
                            value_of(of.kept), setting.answers.empty() ? Value() : Value(of.kl),
                            value_of(setting.held_bytes.value())});
    }
    return table;
  }

  static void drop(TriedSetting& setting, const std::string& left, const std::string& why) {
    if (!setting.why.empty()) return;
    setting.left = left;
    setting.why = first_line(why);  // not what to do about it
  }

  static void keep_there(Rivals& settings) {
    std::erase_if(settings, [](const TriedSetting* setting) { return !setting->why.empty(); });
  }

  TriedSetting* setting_of(const std::string& params, const Rivals& settings) const {
    const auto found = std::ranges::find_if(
        settings, [&](const TriedSetting* each) { return each->policy.composition.params == params; });
    if (found == settings.end())
      input_error("holds answers of a setting that was not asked: " + params, request_.folder,
                  "Choose another folder with -o.");
    return *found;
  }

  static std::string task_name(const std::string& kind, std::size_t i) {
    return kind + '-' + std::to_string(i);
  }

  /// Makes the rows of tasks `first` to `last` - 1 that are not finished; among several ranks each its own.
  template <class Make>
  void make_tasks(const std::string& kind, std::size_t first, std::size_t last, double before, double share,
                  const std::vector<ColumnInfo>& columns, const Make& make) {
    const double each = share / static_cast<double>(last - first);
    for (std::size_t i = first; i < last; ++i) {
      progress_.begin_part(before + each * static_cast<double>(i - first), each);
      progress_.check();
      const std::string task = task_name(kind, i);
      if (tasks_.is_own(i) && !task_finished(request_.folder, task))
        folder_.save(task, {columns, make(i)}, {});
    }
    for (std::size_t i = first; i < last; ++i) tasks_.await(task_name(kind, i), progress_);
  }

  const ChoiceRequest& request_;
  Evaluation& model_;
  Progress& progress_;
  SharedTasks tasks_;
  StudyFolder folder_;
  std::vector<TriedSetting> tried_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> fits_;  ///< tokens, by setting and prompt
  std::vector<Context> search_, confirming_;
};

}  // namespace

bool trusts_peak_loss(const trace::Cut& cut, double share) {
  return cut.at == trace::Cut::At::prompt || share >= 0.25;
}

Choice choose(const ChoiceRequest& request, Evaluation& model, const policy::Registry& registry,
              Progress& progress, Ranks* ranks) {
  return Run(request, model, registry, progress, ranks).choose();
}

}  // namespace kvsim::analysis
