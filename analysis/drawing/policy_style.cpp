#include "analysis/drawing/policy_style.hpp"

#include <algorithm>
#include <cstdint>

#include "sim/base/rng.hpp"

namespace kvsim::analysis {
namespace {

enum Family : std::uint8_t { accumulated, recent_rows, keys, position, future, outside };

/// Of names by their hash, whole and dashed; the last of those that are listed are dotted.
constexpr std::size_t kShades = 3, kMarks = kShapes * kShades * 2;

/// Hues of OKLCH (Ottosson 2020) at equal chroma; shades are equally light in all of them. [family][shade]
constexpr std::array<std::array<Rgb, kShades>, 6> kLight{{{0x0173c7, 0x054980, 0x1e8fee},
                                                          {0xb45007, 0x733204, 0xdd640e},
                                                          {0x02884d, 0x02572f, 0x05a860},
                                                          {0x877004, 0x564700, 0xa68a06},
                                                          {0x8950bf, 0x5e218f, 0xa66edf},
                                                          {0xb83a76, 0x83034c, 0xda5992}}};
constexpr std::array<std::array<Rgb, kShades>, 6> kDark{{{0x6fb6fe, 0xcde4fd, 0x1e8fee},
                                                         {0xfe9052, 0xfed8c5, 0xdb640e},
                                                         {0x38d080, 0x87ffb5, 0x01a760},
                                                         {0xd0af0d, 0xffe069, 0xa58a07},
                                                         {0xc896ff, 0xe9d9ff, 0xa56cde},
                                                         {0xff81b6, 0xfed4e3, 0xd85891}}};

struct Listed {
  std::string_view name;
  Family family;
};
/// The place is the mark: new names go to the end.
constexpr std::array kListed{Listed{"h2o", accumulated},
                             Listed{"snapkv", recent_rows},
                             Listed{"keydiff", keys},
                             Listed{"streaming_llm", position},
                             Listed{"tova", recent_rows},
                             Listed{"random", position},
                             Listed{"lagkv", keys},
                             Listed{"window", position},
                             Listed{"l2_norm", keys},
                             Listed{"expected_attention", recent_rows},
                             Listed{"cake", recent_rows},
                             Listed{"scissorhands", accumulated},
                             Listed{"keyformer", accumulated},
                             Listed{"hashevict", keys},
                             Listed{"a2sf", accumulated},
                             Listed{"roco", accumulated},
                             Listed{"kvcrush", keys},
                             Listed{"vatp", accumulated},
                             Listed{"critical_kv", recent_rows},
                             Listed{"nacl", recent_rows},
                             Listed{"openvino", accumulated},
                             Listed{"q_hitter", accumulated},
                             Listed{"ems_like", recent_rows},
                             Listed{"pivotal_context", recent_rows},
                             Listed{"fastgen", recent_rows},
                             Listed{"optimal", future},
                             Listed{"future_mass", future},
                             Listed{"future_mean", future},
                             Listed{"future_max_logit", future},
                             Listed{"external_scores", outside},
                             Listed{"external_mask", outside},
                             Listed{"external_schedule", outside},
                             Listed{"full", position},
                             Listed{"redundancy", keys},
                             Listed{"periodic", recent_rows},
                             Listed{"caote", recent_rows},
                             Listed{"lava", recent_rows},
                             Listed{"cur_dkv", keys},
                             Listed{"non_causal", accumulated},
                             Listed{"kvzip", outside},
                             Listed{"defensive_kv", recent_rows},
                             Listed{"compactor", keys},
                             Listed{"cap_kv", keys},
                             Listed{"finch", recent_rows},
                             Listed{"group_peaks", recent_rows},
                             Listed{"reference_attention", accumulated},
                             Listed{"matching_pursuit", accumulated},
                             Listed{"observation_window", recent_rows},
                             Listed{"q_filters", keys},
                             Listed{"query_frequencies", keys},
                             Listed{"chunked", recent_rows},
                             Listed{"blockwise", keys},
                             Listed{"sirllm", outside}};
static_assert(kListed.size() <= kShapes * kShades * kDashes);

std::size_t hash_of(std::string_view text) {
  return static_cast<std::size_t>(key_of(text) >> 17);
}

}  // namespace

PolicyStyle policy_style(std::string_view label) {
  if (label.starts_with("full+")) label.remove_prefix(5);
  const std::string_view name = label.substr(0, label.find_first_of("(+.")), rest = label.substr(name.size());
  const auto* listed = std::ranges::find_if(kListed, [&](const Listed& each) { return each.name == name; });
  const bool known = listed != kListed.end();
  const std::size_t hash = hash_of(name);
  const std::size_t family = known ? std::size_t{listed->family} : hash % kLight.size();
  std::size_t mark =
      known ? static_cast<std::size_t>(listed - kListed.begin()) : hash / kLight.size() % kMarks;
  // Another mark than that of the name alone.
  if (!rest.empty()) mark = (mark + 1 + hash_of(rest) % (kMarks - 1)) % kMarks;
  const std::size_t shade = mark / kShapes % kShades;
  return {{kLight[family][shade], kDark[family][shade]},
          mark % kShapes,
          !rest.empty(),
          mark / (kShapes * kShades)};
}

}  // namespace kvsim::analysis
