#include "sim/replay/decisions.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/inputs.hpp"
#include "traces/format/hdf5_input.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::sim {
namespace {

std::string cell_name(std::size_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "%04zu", index);
  return name;
}

void write_resident_intervals(hid_t group, const std::vector<std::vector<ResidentInterval>>& lanes,
                              const std::string& where) {
  std::vector<std::uint64_t> lane_ptr{0};
  std::vector<std::int32_t> position;
  std::vector<std::uint32_t> first, last;
  for (const std::vector<ResidentInterval>& stays : lanes) {
    for (const ResidentInterval& stay : stays) {
      position.push_back(stay.position);
      first.push_back(stay.first);
      last.push_back(stay.last);
    }
    lane_ptr.push_back(position.size());
  }
  hdf5::put_list(group, "lane_ptr", lane_ptr, where);
  hdf5::put_list(group, "position", position, where);
  hdf5::put_list(group, "first_step", first, where);
  hdf5::put_list(group, "last_step", last, where);
}

}  // namespace

Decisions decisions_of(const Request& request, Outcome outcome) {
  Decisions out;
  out.prompt = outcome.prompt;
  out.decode = outcome.decode;
  out.n_layers = outcome.n_layers;
  out.n_kv_heads = outcome.n_kv_heads;
  out.seed = request.seed;
  out.cut = outcome.cut;
  for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
    CellOutcome& cell = outcome.cells[i];
    out.cells.push_back({request.cells[i].composition.name, request.cells[i].composition.params,
                         request.cells[i].budget.text, cell.skipped, std::move(cell.resident_intervals),
                         cell.budget_tokens});
  }
  return out;
}

void write_decisions(const std::string& path, const Decisions& decisions, bool overwrite) {
  const hdf5::Session session;
  hdf5::OutputFile file(path, overwrite);
  {
    hdf5::put_text(file.id(), "format", "kvdecisions", path);
    hdf5::put<std::uint16_t>(file.id(), "schema_major", 1, path);
    hdf5::put<std::uint64_t>(file.id(), "prompt_tokens", decisions.prompt, path);
    hdf5::put<std::uint64_t>(file.id(), "decode_steps", decisions.decode, path);
    hdf5::put<std::uint32_t>(file.id(), "n_layers", decisions.n_layers, path);
    hdf5::put<std::uint32_t>(file.id(), "n_kv_heads", decisions.n_kv_heads, path);
    hdf5::put<std::uint64_t>(file.id(), "seed", decisions.seed, path);
    hdf5::put_text(file.id(), "cut", decisions.cut, path);
    const hdf5::Object cells = hdf5::create_group(file.id(), "cells", path);
    for (std::size_t i = 0; i < decisions.cells.size(); ++i) {
      const Decisions::Cell& cell = decisions.cells[i];
      const std::string where = path + ":/cells/" + cell_name(i);
      const hdf5::Object group = hdf5::create_group(cells.id(), cell_name(i), where);
      hdf5::put_text(group.id(), "policy", cell.policy, where);
      hdf5::put_text(group.id(), "params", cell.params, where);
      hdf5::put_text(group.id(), "budget", cell.budget, where);
      hdf5::put<std::uint64_t>(group.id(), "budget_tokens", cell.budget_tokens, where);
      hdf5::put_text(group.id(), "skipped", cell.skipped, where);
      if (!cell.mode.empty()) hdf5::put_text(group.id(), "mode", cell.mode, where);
      if (cell.skipped.empty()) write_resident_intervals(group.id(), cell.resident_intervals, where);
    }
  }
  file.commit();
}

namespace {

constexpr std::uint64_t kMostCells = 10000, kMostSteps = 1U << 30, kMostTokens = 1ULL << 32;
constexpr std::uint32_t kMostLanes = 1U << 20;

template <class T>
std::vector<T> list_of(const hdf5::InputGroup& group, const char* name, hdf5::Type type) {
  const hdf5::InputDataset dataset = group.dataset(name, {type}, 1);
  std::vector<T> out(dataset.dims()[0]);
  dataset.read_all(out.data());
  return out;
}

std::vector<std::vector<ResidentInterval>> read_resident_intervals(const hdf5::InputGroup& group,
                                                                   std::uint64_t lanes,
                                                                   std::uint64_t decode) {
  const auto ptr = list_of<std::uint64_t>(group, "lane_ptr", hdf5::Type::u64);
  const auto position = list_of<std::int32_t>(group, "position", hdf5::Type::i32);
  const auto first = list_of<std::uint32_t>(group, "first_step", hdf5::Type::u32);
  const auto last = list_of<std::uint32_t>(group, "last_step", hdf5::Type::u32);
  const bool fits = ptr.size() == lanes + 1 && ptr.front() == 0 && ptr.back() == position.size() &&
                    first.size() == position.size() && last.size() == position.size() &&
                    std::is_sorted(ptr.begin(), ptr.end());
  if (!fits) input_error("its lists do not belong together", group.where("lane_ptr"));
  std::vector<std::vector<ResidentInterval>> resident_intervals(lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::uint64_t i = ptr[lane]; i < ptr[lane + 1]; ++i) {
      if (position[i] < 0 || first[i] >= last[i] || last[i] > decode + 1)
        input_error("a stay that cannot be: number " + std::to_string(i), group.where("first_step"));
      resident_intervals[lane].push_back({position[i], first[i], last[i]});
    }
  }
  return resident_intervals;
}

}  // namespace

Decisions read_decisions(const std::string& path) {
  const hdf5::Session session;
  const hdf5::InputFile file(path);
  const hdf5::InputGroup& root = file.root();
  if (!root.has_attribute("format") || root.text("format") != "kvdecisions")
    input_error("holds no decisions", path, "Make it with kvsim replay --decisions FILE.");
  Decisions out;
  out.prompt = root.count("prompt_tokens", kMostSteps);
  out.decode = root.count("decode_steps", kMostSteps);
  out.n_layers = static_cast<std::uint32_t>(root.count("n_layers", kMostLanes));
  out.n_kv_heads = static_cast<std::uint32_t>(root.count("n_kv_heads", kMostLanes));
  out.seed = root.count("seed", std::numeric_limits<std::uint64_t>::max());
  if (root.has_attribute("cut")) out.cut = root.text("cut");
  const std::uint64_t lanes = std::uint64_t{out.n_layers} * out.n_kv_heads;
  const hdf5::InputGroup cells = root.group("cells");
  for (std::size_t i = 0; i < kMostCells && cells.has(cell_name(i)); ++i) {
    const hdf5::InputGroup group = cells.group(cell_name(i));
    Decisions::Cell cell{
        group.text("policy"), group.text("params"), group.text("budget"), group.text("skipped"), {}};
    cell.budget_tokens = group.count("budget_tokens", kMostTokens);
    if (group.has_attribute("mode")) cell.mode = group.text("mode");
    if (cell.skipped.empty() && !group.dataset("lane_ptr", {hdf5::Type::u64}, 1).is_sealed())
      inputs::remark(path + hdf5::kUnsealed);
    if (cell.skipped.empty()) cell.resident_intervals = read_resident_intervals(group, lanes, out.decode);
    out.cells.push_back(std::move(cell));
  }
  return out;
}

}  // namespace kvsim::sim
