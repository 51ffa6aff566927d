#include "analysis/choice/candidates.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/order.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::analysis {
namespace {

/// What a draw is for; each has random numbers of its own.
enum class Draw : std::uint64_t { order, allocation, representation, which, parameter, value };

/// Numbers of one setting.
struct Dice {
  std::uint64_t seed, setting;

  std::uint64_t key(Draw what, std::uint64_t more = 0) const {
    return combine({seed, setting, static_cast<std::uint64_t>(what), more});
  }
  double share(Draw what, std::uint64_t more = 0) const { return uniform01(key(what, more)); }
};

std::size_t drawn(std::uint64_t key, std::size_t of) {
  return std::min(static_cast<std::size_t>(uniform01(key) * static_cast<double>(of)), of - 1);
}

bool legal(const ParamSpec& spec, const std::string& text) {
  try {
    parse_value(spec, text, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Whether a setting may have it: it knows no future and reads no file. What fits values to queries takes
/// longer than all other settings together.
bool may_serve(const policy::PolicySpec& spec, bool second_pass) {
  const bool fits = spec.kind() == policy::Kind::representation && spec.needs.queries && spec.needs.values;
  return !spec.is_oracle() && !fits && policy::complete(spec, second_pass) && spec.name != "uniform";
}

std::vector<const policy::PolicySpec*> parts_of(const policy::Registry& registry, policy::Kind kind,
                                                bool second_pass) {
  std::vector<const policy::PolicySpec*> out;
  for (const policy::PolicySpec& spec : registry.policies())
    if (spec.kind() == kind && may_serve(spec, second_pass)) out.push_back(&spec);
  return out;
}

/// Published systems by their names: those that read all that they store.
std::vector<std::string> systems_of(const policy::Registry& registry, bool second_pass) {
  std::vector<std::string> out;
  for (const policy::PresetSpec& preset : registry.presets()) {
    const policy::Composition system = policy::parse_composition(preset.name, registry);
    const auto serves = [&](const std::optional<policy::Part>& part) {
      return !part || may_serve(*part->spec, second_pass);
    };
    if (!system.selection && serves(system.eviction) && serves(system.representation) &&
        (second_pass || !system.needs().second_pass))
      out.push_back(preset.name);
  }
  return out;
}

/// "name", or "name(param=value,...)" with what was drawn.
std::string part_text(const policy::PolicySpec& spec, const Dice& dice, bool by_default) {
  constexpr double kOther = 0.25;
  std::string params;
  for (const ParamSpec& param : spec.params) {
    const std::uint64_t key = key_of(spec.name + '.' + param.name);
    if (by_default || dice.share(Draw::parameter, key) >= kOther) continue;
    const std::string value = drawn_value(param, dice.key(Draw::value, key));
    if (value != param.fallback) params += (params.empty() ? "" : ",") + param.name + '=' + value;
  }
  return params.empty() ? spec.name : spec.name + '(' + params + ')';
}

}  // namespace

std::string drawn_value(const ParamSpec& spec, std::uint64_t key) {
  std::vector<std::string> values;
  switch (spec.type) {
    case ParamType::count:
      if (const auto whole = number_of<std::uint64_t>(spec.fallback))
        for (const std::uint64_t other : {*whole / 4, *whole / 2, 2 * *whole, 4 * *whole})
          values.push_back(std::to_string(other));
      break;
    case ParamType::real:
      if (const auto real = number_of<double>(spec.fallback))
        for (const double factor : {0.25, 0.5, 2.0, 4.0}) values.push_back(shortest(factor * *real));
      break;
    case ParamType::share:
      if (const auto share = number_of<double>(spec.fallback))
        values = {shortest(*share / 2), shortest((1 + *share) / 2)};
      break;
    case ParamType::choice:
      values = spec.choices;
      break;
    case ParamType::flag:
      values = {"true", "false"};
      break;
    default:  // amounts, pools, policies and words stay as they are
      break;
  }
  std::erase_if(values,
                [&](const std::string& value) { return value == spec.fallback || !legal(spec, value); });
  return values.empty() ? spec.fallback : values[drawn(key, values.size())];
}

std::vector<AskedPolicy> draw_settings(const policy::Registry& registry, std::size_t count,
                                       std::uint64_t seed, bool second_pass) {
  const auto of = [&](policy::Kind kind) { return parts_of(registry, kind, second_pass); };
  const std::vector<const policy::PolicySpec*> evictions = of(policy::Kind::eviction),
                                               allocations = of(policy::Kind::allocation),
                                               representations = of(policy::Kind::representation);
  const std::vector<std::string> systems = systems_of(registry, second_pass);
  const std::size_t known = evictions.size() + systems.size();
  std::vector<AskedPolicy> out;
  // A permutation of the evictions, another in each round; in the first of the systems, too.
  std::vector<std::size_t> order;
  // Many draws make no composition, or one that is there; sixteen for each that is asked for end the search.
  for (std::uint64_t draw = 0; out.size() < count && draw < 16 * count + known; ++draw) {
    const bool first = draw < known;
    const std::uint64_t round = first ? 0 : 1 + (draw - known) / evictions.size(),
                        place = first ? draw : (draw - known) % evictions.size();
    if (place == 0)
      order = least_first(first ? known : evictions.size(), [&](std::size_t i) {
        return combine({seed, round, i});
      });
    const Dice dice{seed, draw};
    std::string text;
    if (order[place] >= evictions.size()) {
      text = systems[order[place] - evictions.size()];
    } else {
      const policy::PolicySpec& eviction = *evictions[order[place]];
      const bool all = eviction.as<policy::EvictionRule>()->keeps_all;
      text = part_text(eviction, dice, first);
      if (!first && !all && !allocations.empty() && dice.share(Draw::allocation) < 1.0 / 3)
        text +=
            '+' + part_text(*allocations[drawn(dice.key(Draw::which, 0), allocations.size())], dice, false);
      if ((all || (!first && dice.share(Draw::representation) < 0.5)) && !representations.empty())
        text += '+' + part_text(*representations[drawn(dice.key(Draw::which, 1), representations.size())],
                                dice, first);
    }
    try {
      policy::Composition composition = policy::parse_composition(text, registry);
      if (std::ranges::none_of(
              out, [&](const AskedPolicy& other) { return other.composition.params == composition.params; }))
        out.push_back({text, std::move(composition)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;  // parts that do not go together
    }
  }
  return out;
}

Split split_by_chance(std::size_t prompts, std::uint64_t seed) {
  const auto order = least_first(prompts, [&](std::size_t i) { return combine({seed, key_of("split"), i}); });
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((prompts + 1) / 2);
  return {{order.begin(), middle}, {middle, order.end()}};
}

namespace {

/// What each prompt says for the first setting and against the other: answers where one was judged, else KL.
std::vector<double> leads(const std::vector<Answered>& first, const std::vector<Answered>& other) {
  std::vector<double> answers, divergences;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].kept && other[i].kept)
      answers.push_back((*first[i].kept ? 1.0 : 0.0) - (*other[i].kept ? 1.0 : 0.0));
    divergences.push_back(other[i].kl - first[i].kl);
  }
  return answers.empty() ? divergences : answers;
}

bool surely_worse(const std::vector<Answered>& first, const std::vector<Answered>& other) {
  constexpr std::size_t kResamples = 2000;
  const std::vector<double> lead = leads(first, other);
  const TraceSet all(lead.size(), true);
  Resamples resamples(std::vector<std::string>(lead.size()), kResamples, 0);
  if (!resamples.has_intervals(all)) return false;
  std::vector<double> means = resamples.means(all, lead);
  return percentile_interval(means, 0.95).low > 0;
}

}  // namespace

Standing standing(const std::vector<Answered>& answers) {
  RunningMean kept, kl;
  for (const Answered& answer : answers) {
    if (answer.kept) kept.add(*answer.kept ? 1 : 0);
    kl.add(answer.kl);
  }
  return {kept.value(), kl.value().value_or(std::numeric_limits<double>::infinity())};
}

std::vector<std::size_t> best_first(const std::vector<std::vector<Answered>>& settings) {
  std::vector<std::tuple<double, double, std::size_t>> order;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Standing of = standing(settings[i]);
    order.emplace_back(-of.kept.value_or(0), of.kl, i);
  }
  std::ranges::sort(order);
  std::vector<std::size_t> out;
  for (const auto& each : order) out.push_back(std::get<2>(each));
  return out;
}

std::vector<std::size_t> survivors(const std::vector<std::vector<Answered>>& settings, std::size_t most) {
  std::vector<std::size_t> order = best_first(settings);
  if (order.empty()) return order;
  order.resize(std::min(order.size(), most));
  const std::vector<Answered>& first = settings[order.front()];
  order.erase(std::remove_if(order.begin() + 1, order.end(),
                             [&](std::size_t other) { return surely_worse(first, settings[other]); }),
              order.end());
  return order;
}

}  // namespace kvsim::analysis
