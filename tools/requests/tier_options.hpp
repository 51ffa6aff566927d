#pragma once
/// The tiers behind a device as options: their links, and how keys and values are stored in them.
#include <cstdint>
#include <optional>
#include <string>

#include "sim/cost/tier_loading.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// As typed; empty: not given.
struct TierOptions {
  std::string kv = "fp16";              ///< on the device, and where nothing else is said
  std::string host_kv{}, ssd_kv{};      ///< fp16, fp32 or a representation
  std::string host_sent{}, ssd_sent{};  ///< a share, or a file of results
  std::string host_link{}, ssd_link{};  ///< "25GB/s,6us"
  std::string tensor_parallel = "1";
  std::optional<double> weight_bits{};
};

/// Adds --kv, --host-kv, --ssd-kv, --host-sent, --ssd-sent, --host-link, --ssd-link, --tensor-parallel and
/// --weight-bits.
void add_tier_options(Command command, TierOptions& options);

/// A model and a machine, found by their names, and how they serve.
serving::ServedModel tier_served(const TierOptions& options, const std::string& model,
                                 const std::string& machine);

/// How a prompt is stored, block by block.
struct TierStorage {
  double device_token_bytes = 0;  ///< on one device
  cost::TierLinks links{};
  std::string device_kv{}, host_kv{}, ssd_kv{};  ///< as tables name them: "cachegen(...) x 0.95"
};

/// The links are the machine's where no option gives one. Each block of `block_tokens` tokens is stored by
/// itself, with its own scales and windows. Throws Error(usage) for links and kinds that are none, with the
/// nearest spelling, and Error(input) for a file of results without what is asked of it.
TierStorage tier_storage(const TierOptions& options, const serving::ServedModel& served,
                         std::uint32_t block_tokens);

}  // namespace kvsim::tools
