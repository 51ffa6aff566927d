#pragma once
/// The speed of a machine: datasheet rates, and how much of them operations reach, fitted to measurements.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::cost {

/// The tiers of memory behind the device's own, nearest first.
enum class Tier : std::uint8_t { host, ssd };
inline constexpr std::array kTiers{Tier::host, Tier::ssd};
constexpr const char* tier_name(Tier tier) {
  return tier == Tier::host ? "host" : "ssd";
}

/// One of something for every tier.
template <class T>
struct PerTier {
  T host{}, ssd{};

  T& operator[](Tier tier) { return tier == Tier::host ? host : ssd; }
  const T& operator[](Tier tier) const { return tier == Tier::host ? host : ssd; }
};

/// Ceilings turn datasheet rates into times: t = ((F/(ec*P))^p + (Q/(em*BW))^p)^(1/p) + t0 per operation.
struct Ceilings {
  double compute = 0.7;                ///< ec, share of the peak that large products reach
  double memory = 0.8;                 ///< em, share of the bandwidth that streaming reaches
  double norm = 2;                     ///< p >= 1; large values are the hard maximum
  double launch = 5e-6;                ///< t0, s per operation
  double elementwise_memory = 0.6;     ///< em of norms, rotations, activations, additions
  double elementwise_launch = 20e-6;   ///< s per layer for all of these, hidden behind their bytes
  double attention_compute = 0.6;      ///< of prefill attention
  double attention_memory = 0.85;      ///< of decode attention
  double attention_launch = 20e-6;     ///< s per layer of attention
  double attention_sequence = 1.5e-6;  ///< s, times sqrt(sequences), per layer of decode attention
  /// Rows of a prefill attention tile: a smaller chunk costs as much as a whole tile.
  std::uint64_t attention_rows = 128;
};

struct Link {
  double bandwidth = 0;  ///< bytes/s in one direction, as reached by large transfers; 0: there is none
  double latency = 0;    ///< s per transfer
  double operation = 0;  ///< s for each contiguous piece of a transfer, beside its bytes
};

/// Numbers of a machine that are not from a datasheet but fitted, so that times or sizes come out as
/// measured.
struct Fit {
  std::string measurements{};       ///< what they were fitted to: "matrix products on a40"
  std::vector<std::string> keys{};  ///< as the file spells them; a link counts as one
};

struct Machine {
  std::string name{};
  std::string source{};               ///< where each number comes from: measurement or datasheet
  double matrix_rate = 0;             ///< FLOP/s, dense fp16/bf16 with fp32 accumulation
  double fp8_rate = 0, fp4_rate = 0;  ///< of products of such numbers, dense; 0: it has none
  double vector_rate = 0;             ///< FLOP/s of everything else, fp32
  double bandwidth = 0;               ///< bytes/s of device memory
  std::uint64_t memory = 0;           ///< bytes of device memory
  std::uint64_t cache = 0;            ///< bytes of the last cache level; 0: not known
  std::uint64_t reserved =
      0;          ///< bytes a runtime takes besides weights, cache and activations (context, workspaces)
  Link host{};    ///< to host memory; bandwidth 0 for machines that are the host
  Link device{};  ///< to its neighbour in tensor parallelism; latency of a whole all-reduce
  double host_bandwidth = 0;      ///< bytes/s of host memory
  std::uint64_t host_memory = 0;  ///< bytes; 0: not known
  Link ssd{};                     ///< to a drive; reads and writes are taken to be equally fast
  std::uint64_t ssd_memory = 0;   ///< bytes; 0: not known
  Ceilings ceilings{};
  std::vector<Fit> fitted{};

  /// FLOP/s of products whose weights and inputs both have so many bits: in a wider type where it has no such
  /// rate.
  double product_rate(unsigned bits) const {
    return bits <= 4 && fp4_rate > 0 ? fp4_rate : bits <= 8 && fp8_rate > 0 ? fp8_rate : matrix_rate;
  }
  const Link& link(Tier tier) const { return tier == Tier::host ? host : ssd; }
  /// Bytes of a tier; 0: not known.
  std::uint64_t capacity(Tier tier) const { return tier == Tier::host ? host_memory : ssd_memory; }
};

/// Returns the machine with all numbers fitted to `measurements` multiplied by `factor` (of a link, its
/// bandwidth), so that every result that rests on the fit changes.
Machine scaled(Machine machine, const std::string& measurements, double factor);

/// Parses a machine file (sim/cost/catalogue/machines/*.json show the keys). Throws Error(input) naming the
/// key: unknown (with the nearest), missing, not positive, an efficiency above 1, or listed as fitted
/// ("kvsim_fitted") but not given.
Machine parse_machine(std::string_view json, const std::string& where);
/// Finds a machine by its name in the catalogue (ignoring case) or reads a file. Throws as find_model does.
Machine find_machine(const std::string& name_or_path);
const std::vector<Machine>& known_machines();
/// Returns text that parse_machine reads, with every key.
std::string machine_text(const Machine& machine);

}  // namespace kvsim::cost
