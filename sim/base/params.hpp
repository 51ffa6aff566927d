#pragma once
/// Parameters, declared once: of policies, of analyses, of study files. Type, default, range, choices, unit
/// and help of a parameter are said in its ParamSpec; parsing, messages, help and documentation follow from
/// it.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

enum class ParamType {
  count,   ///< whole number
  real,    ///< finite number
  share,   ///< 0.1 or 10%, from 0 to 1
  amount,  ///< so many, a whole number from 1, or a share above 0 with a point or a percent sign: 256, 10%,
           ///< 0.1
  flag,    ///< true | false
  choice,  ///< one of `choices`
  pool,    ///< none | avg:K | avg:K:nopad | max:K with odd K
  policy,  ///< an eviction that ranks by a score, e.g. h2o or snapkv(window=8)
  word,    ///< text without commas and parentheses, such as a file name
  text,    ///< any text
  counts,  ///< comma list of them, as are the next two
  shares,
  texts,  ///< each one of `choices`, where there are any
};

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct ParamSpec {
  std::string name{};
  ParamType type = ParamType::count;
  std::string fallback{};              ///< default, as typed
  double min = 0, max = 0;             ///< inclusive, of count, real and counts
  std::vector<std::string> choices{};  ///< words; besides numbers or shares they may stand too
  std::string unit{};                  ///< tokens, share, ... or empty
  std::string help{};
  std::string form{};     ///< of text and texts: how it is written, for help ("128, 25%, 64MiB")
  bool required = false;  ///< it has no default
};

// Declarations by type: the name, the default as typed, what is legal, help, and a unit if it has one.
struct ParamRange {
  double min = 0, max = 0;  ///< inclusive
};
ParamSpec count_param(std::string name, std::string fallback, ParamRange range, std::string help,
                      std::string unit = {});
ParamSpec real_param(std::string name, std::string fallback, ParamRange range, std::string help,
                     std::string unit = {});
ParamSpec share_param(std::string name, std::string fallback, std::string help, std::string unit = {});
ParamSpec amount_param(std::string name, std::string fallback, std::string help, std::string unit = {});
ParamSpec flag_param(std::string name, std::string fallback, std::string help);
ParamSpec choice_param(std::string name, std::string fallback, std::vector<std::string> choices,
                       std::string help, std::string unit = {});
ParamSpec pool_param(std::string name, std::string fallback, std::string help);
ParamSpec policy_param(std::string name, std::string fallback, std::string help);
ParamSpec word_param(std::string name, std::string fallback, std::string help, std::string unit = {});
/// A word without a default, such as the name of a file.
ParamSpec required_param(std::string name, std::string help);

/// So many of what there is, or a share of it.
struct Amount {
  std::uint64_t whole = 0;  ///< 0: a share
  double share = 0;

  /// Returns how many of `all` these are: at least 1 where there are any, at most all; a share is rounded up.
  std::uint64_t of(std::uint64_t all) const;
};

/// A value of a parameter.
struct ParamValue {
  std::string name{}, text{};  ///< text is canonical: equal values have equal text
  ParamType type = ParamType::count;
  std::uint64_t whole = 0;          ///< of count, and of an amount that is not a share
  double number = 0;                ///< of count, real, share and amount; 0 or 1 of a flag; K of a pool
  std::vector<ParamValue> items{};  ///< of a list
};

/// Values of declared parameters, in the order of the declaration. Readers throw Error(bug) for a name or
/// type that was not declared.
class ParamValues {
 public:
  using Entry = ParamValue;

  bool has(std::string_view name) const;
  std::uint64_t count(std::string_view name) const;
  double real(std::string_view name) const;
  double share(std::string_view name) const;
  Amount amount(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& word(std::string_view name) const;  ///< of a choice, pool, word or text
  /// Whether it is one of its `choices`, this one: a number or share may have words that stand for it.
  bool is(std::string_view name, std::string_view choice) const;
  std::vector<std::uint64_t> counts(std::string_view name) const;
  std::vector<double> shares(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  /// "a=1,b=mean": every parameter.
  std::string text() const;

  std::vector<Entry> entries{};

 protected:
  const Entry& find(std::string_view name) const;
  const Entry& find(std::string_view name, ParamType type) const;
};

/// What `specs` declare under these names, for suggestions.
std::vector<std::string> param_names(const std::vector<ParamSpec>& specs);

}  // namespace kvsim
