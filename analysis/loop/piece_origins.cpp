#include "analysis/loop/piece_origins.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "analysis/loop/words.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::analysis {
namespace {

using Choice = sim::Assembly::Choice;
using Span = workload::ByteSpan;

void append(std::span<const std::int32_t> ids, std::uint64_t begin, std::uint64_t end,
            std::vector<std::int32_t>& to) {
  to.insert(to.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
            ids.begin() + static_cast<std::ptrdiff_t>(end));
}

std::vector<PieceOrigin> alone(std::span<const std::int32_t> ids, std::span<const Span> pieces,
                               std::uint64_t lead) {
  std::vector<PieceOrigin> out;
  for (const auto& [begin, end] : pieces) {
    PieceOrigin& origin = out.emplace_back();
    origin.piece = {begin, end, nullptr, begin == 0 ? 0 : lead};
    append(ids, 0, origin.piece.lead, origin.ids);
    append(ids, begin, end, origin.ids);
  }
  return out;
}

/// What stands between documents stays between them.
std::vector<PieceOrigin> reversed(std::span<const std::int32_t> ids, std::span<const Span> documents) {
  const std::uint64_t first = documents.front().begin;
  std::vector<std::int32_t> run;
  append(ids, 0, first, run);
  std::vector<std::uint64_t> leads(documents.size());
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::size_t there = documents.size() - 1 - i;
    leads[there] = run.size();
    append(ids, documents[there].begin, documents[there].end, run);
    if (i + 1 < documents.size()) append(ids, documents[i].end, documents[i + 1].begin, run);
  }
  std::vector<PieceOrigin> out;
  if (first > 0) out.push_back({{0, first, nullptr, 0}, run});
  for (std::size_t i = 0; i < documents.size(); ++i)
    out.push_back({{documents[i].begin, documents[i].end, nullptr, leads[i]}, run});
  return out;
}

std::vector<PieceOrigin> without(std::span<const std::int32_t> ids, const Span& edit) {
  const auto& [begin, end] = edit;
  std::vector<std::int32_t> run;
  append(ids, 0, begin, run);
  append(ids, end, ids.size(), run);
  std::vector<PieceOrigin> out;
  if (begin > 0) out.push_back({{0, begin, nullptr, 0}, run});
  if (end + 1 < ids.size()) out.push_back({{end, ids.size() - 1, nullptr, begin}, run});
  return out;
}

std::vector<PieceOrigin> unedited(std::span<const std::int32_t> ids, std::span<const std::int32_t> before) {
  std::vector<PieceOrigin> out;
  for (sim::Piece& piece : sim::unedited_pieces(before, ids))
    out.push_back({std::move(piece), {before.begin(), before.end()}});
  return out;
}

}  // namespace

std::vector<PieceOrigin> piece_origins(std::span<const std::int32_t> ids,
                                       std::span<const std::int32_t> before, std::span<const Span> documents,
                                       std::uint64_t lead, const sim::Assembly& assembly,
                                       const std::string& where) {
  std::vector<Span> pieces;
  for (const auto& [begin, end] : documents)
    if (begin + 1 < ids.size()) pieces.push_back({begin, std::min<std::uint64_t>(end, ids.size() - 1)});
  if (assembly.choice == Choice::edit) {
    if (assembly.tokens > pieces.size())
      usage_error(
          "has " + std::to_string(pieces.size()) + " documents, and " + assembly.name + " asks for another",
          where);
    if (assembly.tokens == 0 && before.empty())
      usage_error("has no earlier version, which " + assembly.name + " takes over", where,
                  "Write it into the field before: traces/workloads/README.md.");
    return assembly.tokens == 0 ? unedited(ids, before) : without(ids, pieces[assembly.tokens - 1]);
  }
  if (pieces.empty()) return {};
  if (assembly.choice == Choice::across) return reversed(ids, pieces);
  if (pieces.front().begin > 0) pieces.insert(pieces.begin(), Span{0, pieces.front().begin});
  return alone(ids, pieces, lead);
}

bool same_origins(const sim::Assembly& a, const sim::Assembly& b) {
  const auto key = [](const sim::Assembly& way) {
    const bool across = way.choice == Choice::across, edit = way.choice == Choice::edit;
    return std::tuple(across ? 1 : edit ? 2 : 0, across ? way.alpha : 0, edit ? way.tokens : 0);
  };
  return key(a) == key(b);
}

DocumentRuns::Run DocumentRuns::find(Key key, const std::function<trace::MemoryTrace()>& run) {
  const auto known = std::ranges::find(runs_, key, &std::pair<Key, Run>::first);
  if (known == runs_.end())
    runs_.emplace_front(std::move(key), std::make_shared<const trace::MemoryTrace>(run()));
  else
    runs_.splice(runs_.begin(), runs_, known);
  return runs_.front().second;
}

void DocumentRuns::keep(std::uint64_t tokens) {
  std::uint64_t sum = 0;
  std::erase_if(runs_, [&](const auto& kept) { return (sum += kept.first.ids.size()) > tokens; });
}

std::vector<std::size_t> retrieved_documents(const std::vector<std::string>& documents,
                                             const std::string& question, std::size_t n) {
  constexpr double kK1 = 1.2, kB = 0.75;
  std::vector<std::map<std::string, double>> counts(documents.size());
  std::vector<double> lengths(documents.size());
  std::map<std::string, double> held_by;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    for (const std::string& word : words_of(documents[i])) {
      ++counts[i][word];
      ++lengths[i];
    }
    for (const auto& [word, count] : counts[i]) ++held_by[word];
  }
  const auto all = static_cast<double>(documents.size());
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / all;
  const std::vector<std::string> asked = words_of(question);
  std::vector<double> scores(documents.size());
  for (const std::string& word : std::set<std::string>(asked.begin(), asked.end())) {
    const double of = held_by[word], rarity = std::log(1 + (all - of + 0.5) / (of + 0.5));
    for (std::size_t i = 0; i < documents.size(); ++i)
      if (const auto count = counts[i].find(word); count != counts[i].end())
        scores[i] +=
            rarity * count->second * (kK1 + 1) / (count->second + kK1 * (1 - kB + kB * lengths[i] / mean));
  }
  std::vector<std::size_t> order = largest_first(scores);
  order.resize(std::min(n, order.size()));
  std::ranges::sort(order);
  return order;
}

}  // namespace kvsim::analysis
