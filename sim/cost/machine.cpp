#include "sim/cost/machine.hpp"

#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"
#include "sim/cost/catalogue_files.hpp"

namespace kvsim::cost {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxMachineValues = 1000;
/// Upper limit of every number in the units of a file, beyond any machine; sums and ratios of such numbers
/// stay finite.
constexpr double kMax = 1e9, kLeast = 1e-9;
constexpr double kGiga = 1e9, kMicro = 1e-6;

enum class Range {
  positive,  ///< above zero
  from_zero,
  share,        ///< above zero, at most one: an efficiency
  at_least_one  ///< a norm
};

/// A number of a file: `value` times `unit` is what a Machine holds.
template <class T>
struct Field {
  const char* key;
  double T::*value;
  double unit;
  Range range;
};
struct Size {
  const char* key;
  std::uint64_t Machine::*bytes;
  double unit;
  bool written;  ///< the unit, of two, that machine_text uses: decimal units give whole bytes in few digits
};

constexpr Field<Machine> kRates[] = {{"matrix_tflops", &Machine::matrix_rate, 1e12, Range::positive},
                                     {"vector_tflops", &Machine::vector_rate, 1e12, Range::positive},
                                     {"bandwidth_gb_s", &Machine::bandwidth, kGiga, Range::positive}};
constexpr Field<Machine> kNarrowRates[] = {{"matrix_tflops_fp8", &Machine::fp8_rate, 1e12, Range::positive},
                                           {"matrix_tflops_fp4", &Machine::fp4_rate, 1e12, Range::positive}};
constexpr Field<Machine> kHostBandwidth{"host_bandwidth_gb_s", &Machine::host_bandwidth, kGiga,
                                        Range::positive};
/// Each size can be given in either unit: vendors print both as "GB".
constexpr Size kSizes[] = {{"memory_gib", &Machine::memory, kGib, false},
                           {"memory_gb", &Machine::memory, kGiga, true},
                           {"reserved_gib", &Machine::reserved, kGib, false},
                           {"reserved_gb", &Machine::reserved, kGiga, true},
                           {"host_memory_gib", &Machine::host_memory, kGib, false},
                           {"host_memory_gb", &Machine::host_memory, kGiga, true},
                           {"ssd_gib", &Machine::ssd_memory, kGib, false},
                           {"ssd_gb", &Machine::ssd_memory, kGiga, true},
                           {"cache_mb", &Machine::cache, 1e6, true},
                           {"cache_mib", &Machine::cache, 1024.0 * 1024.0, false}};
constexpr Field<Link> kLink[] = {{"gb_s", &Link::bandwidth, kGiga, Range::positive},
                                 {"latency_us", &Link::latency, kMicro, Range::from_zero},
                                 {"operation_us", &Link::operation, kMicro, Range::from_zero}};
struct NamedLink {
  const char* key;
  Link Machine::*link;
};
constexpr NamedLink kLinks[] = {
    {"host_link", &Machine::host}, {"device_link", &Machine::device}, {"ssd_link", &Machine::ssd}};
constexpr Field<Ceilings> kCeilings[] = {
    {"compute", &Ceilings::compute, 1, Range::share},
    {"memory", &Ceilings::memory, 1, Range::share},
    {"norm", &Ceilings::norm, 1, Range::at_least_one},
    {"launch_us", &Ceilings::launch, kMicro, Range::from_zero},
    {"elementwise_memory", &Ceilings::elementwise_memory, 1, Range::share},
    {"elementwise_launch_us", &Ceilings::elementwise_launch, kMicro, Range::from_zero},
    {"attention_compute", &Ceilings::attention_compute, 1, Range::share},
    {"attention_memory", &Ceilings::attention_memory, 1, Range::share},
    {"attention_launch_us", &Ceilings::attention_launch, kMicro, Range::from_zero},
    {"attention_sequence_us", &Ceilings::attention_sequence, kMicro, Range::from_zero}};
constexpr const char* kAttentionRowsKey = "attention_rows";
constexpr const char* kFitted = "kvsim_fitted";

/// Returns the shortest text that reads back as the same double.
std::string text_of(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

double checked(const JsonObject& object, const char* key, Range range) {
  const double value = object.number(key, -kMax, kMax);
  const char* const problem =
      range == Range::from_zero ? (value < 0 ? "is below zero" : nullptr)
      : range == Range::at_least_one
          ? (value < 1 ? "is below 1, the least norm (the sum of both times)" : nullptr)
      : value <= 0                         ? "is not above zero"
      : range == Range::share && value > 1 ? "is above 1: an efficiency is a share of the datasheet's rate"
                                           : nullptr;
  if (problem == nullptr && value > 0 && value < kLeast)
    input_error(text_of(value) + " is below " + text_of(kLeast) + ", which no machine is", object.path(key));
  if (problem != nullptr) input_error(text_of(value) + " " + problem, object.path(key));
  return value;
}

template <class T>
void read_field(const JsonObject& object, const Field<T>& field, T& out) {
  if (object.has(field.key)) out.*field.value = checked(object, field.key, field.range) * field.unit;
}

void read_sizes(const JsonObject& object, Machine& machine) {
  for (const Size& size : kSizes) {
    if (!object.has(size.key)) continue;
    if (machine.*size.bytes != 0)
      input_error("given twice, in two units: keep one", object.path(size.key),
                  "GB are 1e9 bytes, GiB are 2^30");
    machine.*size.bytes =
        static_cast<std::uint64_t>(std::llround(checked(object, size.key, Range::positive) * size.unit));
    if (machine.*size.bytes == 0) input_error("is less than one byte", object.path(size.key));
  }
}

/// Checks that every member's name is among `known`, because a misspelt name would silently keep a default.
void refuse_others(const JsonObject& object, const std::vector<std::string>& known) {
  for (const auto& member : object.raw()) {
    const std::string_view key{member.key().data(), member.key().size()};
    if (std::find(known.begin(), known.end(), key) == known.end())
      input_error("unknown key " + in_quotes(key), object.where(), suggestion(key, known));
  }
}

template <class T>
std::vector<std::string> keys_of(std::span<const Field<T>> fields) {
  std::vector<std::string> keys;
  for (const Field<T>& field : fields) keys.emplace_back(field.key);
  return keys;
}

std::vector<std::string> machine_keys() {
  std::vector<std::string> keys = keys_of<Machine>(kRates);
  for (const std::string& key : keys_of<Machine>(kNarrowRates)) keys.push_back(key);
  for (const Size& size : kSizes) keys.emplace_back(size.key);
  for (const NamedLink& link : kLinks) keys.emplace_back(link.key);
  for (const char* key : {kHostBandwidth.key, "ceilings", "kvsim_name", "kvsim_source", kFitted})
    keys.emplace_back(key);
  return keys;
}

Link read_link(const JsonObject& object) {
  refuse_others(object, keys_of<Link>(kLink));
  Link link;
  object.at("gb_s");
  for (const Field<Link>& field : kLink) read_field(object, field, link);
  return link;
}

Ceilings read_ceilings(const JsonObject& object) {
  auto known = keys_of<Ceilings>(kCeilings);
  known.emplace_back(kAttentionRowsKey);
  refuse_others(object, known);
  Ceilings ceilings;
  for (const Field<Ceilings>& field : kCeilings) read_field(object, field, ceilings);
  ceilings.attention_rows = object.integer_or(kAttentionRowsKey, 1, 1 << 20, ceilings.attention_rows);
  return ceilings;
}

/// Reads which numbers were fitted. They must be in the file, and none may be fitted twice.
std::vector<Fit> read_fits(const JsonObject& machine) {
  std::vector<std::string> given;
  const auto add_numbers = [&given](const JsonObject& object) {
    for (const auto& member : object.raw())
      if (object.has(member.key()) && std::string_view(member.key()).substr(0, 6) != "kvsim_")
        given.emplace_back(member.key());
  };
  add_numbers(machine);
  std::erase(given, "ceilings");
  if (machine.has("ceilings")) add_numbers(machine.object("ceilings"));
  const JsonObject fits = machine.object(kFitted);
  std::vector<Fit> out;
  for (const auto& member : fits.raw()) {
    Fit fit{.measurements = std::string(member.key())};
    for (const boost::json::value& value : fits.array(fit.measurements)) {
      const std::string key = value.is_string() ? std::string(value.get_string()) : std::string();
      const auto found = std::find(given.begin(), given.end(), key);
      if (found == given.end())
        input_error("no number that this file gives, or one that is fitted already: " + in_quotes(key),
                    fits.path(fit.measurements), suggestion(key, given));
      given.erase(found);
      fit.keys.push_back(key);
    }
    out.push_back(std::move(fit));
  }
  return out;
}

Machine parse_named(std::string_view text, const std::string& where, const std::string& name) {
  const boost::json::value document = parse_strict_json(text, where, kMaxMachineValues);
  const JsonObject object(document, where);
  refuse_others(object, machine_keys());
  Machine machine;
  machine.name = object.text_or("kvsim_name", name);
  machine.source = object.text_or("kvsim_source", where);
  for (const Field<Machine>& field : kRates) {
    object.at(field.key);
    read_field(object, field, machine);
  }
  for (const Field<Machine>& field : kNarrowRates) read_field(object, field, machine);
  read_field(object, kHostBandwidth, machine);
  read_sizes(object, machine);
  if (machine.memory == 0) input_error("missing \"memory_gib\" (2^30 bytes) or \"memory_gb\" (1e9)", where);
  if (machine.reserved >= machine.memory)
    input_error("the runtime's reserve leaves no memory", where, "reserved_gib is below memory_gib");
  for (const NamedLink& link : kLinks)
    if (object.has(link.key)) machine.*link.link = read_link(object.object(link.key));
  if (object.has("ceilings")) machine.ceilings = read_ceilings(object.object("ceilings"));
  if (object.has(kFitted)) machine.fitted = read_fits(object);
  return machine;
}

std::string json_text(const std::string& text) {
  return boost::json::serialize(boost::json::string(text));
}

/// Returns the key that machine_text writes for a size, whichever of its units `key` names.
const char* written_key(const std::string& key) {
  for (const Size& size : kSizes)
    if (key == size.key)
      for (const Size& other : kSizes)
        if (other.written && other.bytes == size.bytes) return other.key;
  return key.c_str();
}

std::string fits_text(const std::vector<Fit>& fits) {
  boost::json::object text;
  for (const Fit& fit : fits) {
    boost::json::array& keys = text[fit.measurements].emplace_array();
    for (const std::string& key : fit.keys) keys.emplace_back(written_key(key));
  }
  return boost::json::serialize(text);
}

/// Writes "key": value, in the unit of the file. Dividing by the unit and multiplying when the file is read
/// need not give the same double, so the neighbours of the quotient are tried.
std::string in_unit(double value, double unit) {
  const double quotient = value / unit;
  for (const double near : {quotient, std::nextafter(quotient, 0), std::nextafter(quotient, kMax * 2)})
    if (near * unit == value) return text_of(near);
  return text_of(quotient);
}

template <class T>
std::string members(std::span<const Field<T>> fields, const T& of) {
  std::string text;
  for (const Field<T>& field : fields) {
    if (!text.empty()) text += ", ";
    text += '"' + std::string(field.key) + "\": " + in_unit(of.*field.value, field.unit);
  }
  return text;
}

}  // namespace

Machine scaled(Machine machine, const std::string& measurements, double factor) {
  for (const Fit& fit : machine.fitted) {
    if (fit.measurements != measurements) continue;
    for (const std::string& key : fit.keys) {
      for (const Field<Machine>& field : kRates)
        if (key == field.key) machine.*field.value *= factor;
      if (key == kHostBandwidth.key) machine.host_bandwidth *= factor;
      for (const Size& size : kSizes)
        if (key == size.key)
          machine.*size.bytes = static_cast<std::uint64_t>(factor * static_cast<double>(machine.*size.bytes));
      for (const NamedLink& link : kLinks)
        if (key == link.key) (machine.*link.link).bandwidth *= factor;
      for (const Field<Ceilings>& field : kCeilings)
        if (key == field.key) machine.ceilings.*field.value *= factor;
      if (key == kAttentionRowsKey)
        machine.ceilings.attention_rows = static_cast<std::uint64_t>(
            std::ceil(factor * static_cast<double>(machine.ceilings.attention_rows)));
    }
  }
  return machine;
}

Machine parse_machine(std::string_view json, const std::string& where) {
  return parse_named(json, where, where);
}

const std::vector<Machine>& known_machines() {
  static const std::vector<Machine> kMachines = [] {
    std::vector<Machine> machines;
    for (const CatalogueFile& file : machine_files())
      machines.push_back(parse_named(file.text, "machine " + std::string(file.name), std::string(file.name)));
    return machines;
  }();
  return kMachines;
}

Machine find_machine(const std::string& name_or_path) {
  std::vector<std::string> names;
  for (const Machine& machine : known_machines()) {
    if (edit_distance(machine.name, name_or_path) == 0) return machine;
    names.push_back(machine.name);
  }
  std::error_code ignored;
  if (std::filesystem::exists(name_or_path, ignored))
    return parse_named(read_file(name_or_path, kMaxFileBytes), name_or_path,
                       std::filesystem::path(name_or_path).stem().string());
  usage_error("no machine is called " + in_quotes(name_or_path) + ", and no such file exists", "machine",
              suggestion(name_or_path, names));
}

std::string machine_text(const Machine& machine) {
  std::string text = "{\n  \"kvsim_name\": " + json_text(machine.name) +
                     ",\n  \"kvsim_source\": " + json_text(machine.source) + ",\n  " +
                     members<Machine>(kRates, machine);
  const auto line = [&](const char* key, const std::string& value) {
    text += ",\n  \"" + std::string(key) + "\": " + value;
  };
  for (const Field<Machine>& rate : kNarrowRates)
    if (machine.*rate.value > 0) line(rate.key, in_unit(machine.*rate.value, rate.unit));
  if (machine.host_bandwidth > 0)
    line(kHostBandwidth.key, in_unit(machine.host_bandwidth, kHostBandwidth.unit));
  for (const Size& size : kSizes)
    if (size.written && machine.*size.bytes != 0)
      line(size.key, text_of(static_cast<double>(machine.*size.bytes) / size.unit));
  for (const NamedLink& link : kLinks)
    if ((machine.*link.link).bandwidth > 0)
      line(link.key, "{" + members<Link>(kLink, machine.*link.link) + "}");
  if (!machine.fitted.empty()) line(kFitted, fits_text(machine.fitted));
  line("ceilings", "{" + members<Ceilings>(kCeilings, machine.ceilings) + ", \"" + kAttentionRowsKey +
                       "\": " + std::to_string(machine.ceilings.attention_rows) + "}");
  return text + "\n}\n";
}

}  // namespace kvsim::cost
