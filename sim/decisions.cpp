#include "sim/decisions.hpp"

#include <cstdio>

#include "traces/hdf5_output.hpp"

namespace kvsim::sim {
namespace {

std::string cell_name(std::size_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "%04zu", index);
  return name;
}

void write_residency(hid_t group, const std::vector<std::vector<Residency>>& lanes,
                     const std::string& where) {
  std::vector<std::uint64_t> lane_ptr{0};
  std::vector<std::int32_t> position;
  std::vector<std::uint32_t> first, last;
  for (const std::vector<Residency>& stays : lanes) {
    for (const Residency& stay : stays) {
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

void write_decisions(const std::string& path, const Request& request, const Outcome& outcome,
                     bool overwrite) {
  const hdf5::Session session;
  hdf5::OutputFile file(path, overwrite);
  {
    hdf5::put_text(file.id(), "format", "kvdecisions", path);
    hdf5::put<std::uint16_t>(file.id(), "schema_major", 1, path);
    hdf5::put<std::uint64_t>(file.id(), "prompt_tokens", outcome.prompt, path);
    hdf5::put<std::uint64_t>(file.id(), "decode_steps", outcome.decode, path);
    hdf5::put<std::uint32_t>(file.id(), "n_layers", outcome.n_layers, path);
    hdf5::put<std::uint32_t>(file.id(), "n_kv_heads", outcome.n_kv_heads, path);
    hdf5::put<std::uint64_t>(file.id(), "seed", request.seed, path);
    const hdf5::Object cells = hdf5::create_group(file.id(), "cells", path);
    for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
      const std::string where = path + ":/cells/" + cell_name(i);
      const hdf5::Object group = hdf5::create_group(cells.id(), cell_name(i), where);
      hdf5::put_text(group.id(), "policy", request.cells[i].composition.name, where);
      hdf5::put_text(group.id(), "params", request.cells[i].composition.params, where);
      hdf5::put_text(group.id(), "budget", request.cells[i].budget.text, where);
      hdf5::put<std::uint64_t>(group.id(), "budget_tokens", outcome.cells[i].budget_tokens, where);
      hdf5::put_text(group.id(), "skipped", outcome.cells[i].skipped, where);
      if (outcome.cells[i].skipped.empty()) write_residency(group.id(), outcome.cells[i].residency, where);
    }
  }
  file.commit();
}

}  // namespace kvsim::sim
