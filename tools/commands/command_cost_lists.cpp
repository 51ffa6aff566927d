// kvsim cost models, kvsim cost machines: what is known by name.
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/message_text.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/memory.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/cost_document.hpp"

namespace kvsim::tools {
namespace {

using analysis::Align;
using analysis::rounded_text;
using analysis::Value;

std::uint64_t token_bytes(const cost::Model& model) {
  return cost::full_cache_bytes(model, {}, 1, 1);
}
std::uint64_t weight_bytes(const cost::Model& model) {
  return cost::weight_bytes(model, {}, 1);
}

/// What is not there is undefined.
template <class T>
Value known(T value) {
  return value > 0 ? Value(value) : Value();
}
std::string rate_text(double bytes_per_second) {
  return bytes_per_second > 0 ? rounded_text(bytes_per_second / 1e9, 1) : "-";
}

template <class Item, class Find>
std::vector<Item> chosen(const std::vector<std::string>& names, const std::vector<Item>& known, Find find) {
  if (names.empty()) return known;
  std::vector<Item> out;
  for (const std::string& name : names) out.push_back(find(name));
  return out;
}
std::vector<cost::Model> models(const std::vector<std::string>& names) {
  return chosen(names, cost::known_models(), cost::find_model);
}
std::vector<cost::Machine> machines(const std::vector<std::string>& names) {
  return chosen(names, cost::known_machines(), cost::find_machine);
}

template <class Item>
void print(std::ostream& out, analysis::TextTable& table, const std::vector<Item>& items, bool named) {
  table.print(out);
  out << '\n';
  if (!named) out << "where a row's numbers come from: name it after this command, or all with --format md\n";
  for (const Item& item : items)
    if (named) out << item.name << ": " << item.source << '\n';
}

/// "compute, memory: matrix products on a40; reserved_gib: ..."
std::string fitted_text(const cost::Machine& machine) {
  std::string text;
  for (const cost::Fit& fit : machine.fitted)
    text += (text.empty() ? "" : "; ") + joined(fit.keys) + ": " + fit.measurements;
  return text;
}

analysis::Records model_records(const std::vector<std::string>& names) {
  analysis::Records out;
  out.columns = {{"model", "", "as --model takes it"},
                 {"parameters", "", "embeddings and head included"},
                 {"layers", "", ""},
                 {"hidden", "", "width"},
                 {"query_heads", "", "per layer"},
                 {"kv_heads", "", "per layer"},
                 {"head_dim", "", "components of a key"},
                 {"max_context", "tokens", "positions the model was made for"},
                 {"token_bytes", "bytes", "keys and values of one token in fp16, all layers"},
                 {"weights_bytes", "bytes", "fp16"},
                 {"source", "", "where the numbers come from"}};
  for (const cost::Model& model : models(names))
    out.rows.push_back({model.name, model.parameters(), model.layers, model.hidden, model.query_heads,
                        model.kv_heads, model.head_dim, known(model.max_context), token_bytes(model),
                        weight_bytes(model), model.source});
  return out;
}

void write_model_table(std::ostream& out, const std::vector<std::string>& names) {
  const std::vector<cost::Model> shown = models(names);
  analysis::TextTable table;
  table.add_column("model", Align::left);
  table.add_column("parameters 10^9", Align::point);
  for (const char* heading : {"layers", "hidden", "query heads", "KV heads", "head dim", "made for tokens"})
    table.add_column(heading, Align::right);
  table.add_column("KV/token KiB", Align::point);
  table.add_column("weights GiB", Align::point);
  for (const cost::Model& model : shown)
    table.add_row({model.name, rounded_text(static_cast<double>(model.parameters()) / 1e9, 3),
                   std::to_string(model.layers), std::to_string(model.hidden),
                   std::to_string(model.query_heads), std::to_string(model.kv_heads),
                   std::to_string(model.head_dim),
                   model.max_context > 0 ? std::to_string(model.max_context) : "-",
                   rounded_text(static_cast<double>(token_bytes(model)) / 0x1p10, 1),
                   rounded_text(analysis::gib(weight_bytes(model)), 2)});
  print(out, table, shown, !names.empty());
}

analysis::Records machine_records(const std::vector<std::string>& names) {
  analysis::Records out;
  out.columns = {{"machine", "", "as --machine takes it"},
                 {"matrix_rate", "FLOP/s", "dense fp16 products, fp32 sums, peak"},
                 {"bandwidth", "bytes/s", "device memory"},
                 {"memory_bytes", "bytes", "device memory"},
                 {"reserved_bytes", "bytes", "of the runtime"},
                 {"compute", "share", "of the peak that large products reach"},
                 {"memory", "share", "of the bandwidth that streaming reaches"},
                 {"host_bandwidth", "bytes/s", "to host memory, one direction; null: it is the host"},
                 {"device_bandwidth", "bytes/s", "to a neighbour, one direction; null: there is no link"},
                 {"fitted", "", "which of its numbers were fitted, by the keys of its file, and to what"},
                 {"source", "", "where the numbers come from"}};
  for (const cost::Machine& machine : machines(names))
    out.rows.push_back({machine.name, machine.matrix_rate, machine.bandwidth, machine.memory,
                        machine.reserved, machine.ceilings.compute, machine.ceilings.memory,
                        known(machine.host.bandwidth), known(machine.device.bandwidth), fitted_text(machine),
                        machine.source});
  return out;
}

void write_machine_table(std::ostream& out, const std::vector<std::string>& names) {
  const std::vector<cost::Machine> shown = machines(names);
  analysis::TextTable table;
  table.add_column("machine", Align::left);
  for (const char* heading : {"peak TFLOP/s", "compute reached", "memory GiB", "memory GB/s",
                              "memory reached", "runtime GiB", "to host GB/s", "to device GB/s"})
    table.add_column(heading, Align::point);
  for (const cost::Machine& machine : shown)
    table.add_row({machine.name, rounded_text(machine.matrix_rate / 1e12, 1),
                   rounded_text(machine.ceilings.compute, 2), rounded_text(analysis::gib(machine.memory), 1),
                   rate_text(machine.bandwidth), rounded_text(machine.ceilings.memory, 2),
                   rounded_text(analysis::gib(machine.reserved), 1), rate_text(machine.host.bandwidth),
                   rate_text(machine.device.bandwidth)});
  print(out, table, shown, !names.empty());
}

using Names = std::vector<std::string>;

void add_list(Command cost, const char* name, const char* help, const char* type,
              analysis::Records (*records)(const Names&), void (*write)(std::ostream&, const Names&)) {
  const std::string command = std::string("  kvsim cost ") + name;
  Command list =
      cost.add_subcommand(name, help, "Examples:\n" + command + '\n' + command + " -o " + name + ".csv\n");
  const auto options = std::make_shared<OutputOptions>();
  const auto names = std::make_shared<Names>();
  list.add_option(type, *names, "", "These only, names or files (default: all that are known)");
  add_output_options(list, *options);
  list.callback([=] {
    commit_costs(*options, false,
                 {.analysis = std::string("cost ") + name,
                  .traces = {},
                  .records = records(*names),
                  .console = [&](std::ostream& out) { write(out, *names); }});
  });
}

}  // namespace

void add_cost_lists(Command cost) {
  add_list(cost, "models", "Models known by name, and where their numbers come from", "MODEL", model_records,
           write_model_table);
  add_list(cost, "machines", "Machines known by name, and where their numbers come from", "MACHINE",
           machine_records, write_machine_table);
}

}  // namespace kvsim::tools
