#include "traces/model/stored_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/half.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::model {
namespace {

constexpr const char* kByHand =
    "kvsim cost reads a copy of the file without quantization_config, and takes --weight-bits.";
constexpr std::uint64_t kMostBits = 16, kMostGroup = 1 << 20;
constexpr double kHalf = 16, kSingle = 32;

/// Returns a group's size; -1 is a whole row.
std::uint64_t group_size(const JsonObject& object, const char* field, std::uint64_t absent) {
  const boost::json::value* value = object.find(field);
  if (value != nullptr && value->is_int64() && value->get_int64() == -1) return 0;
  return object.integer_or(field, 1, kMostGroup, absent);
}

/// Modules that stay as they come must not be matrices of the blocks: heads, embeddings, norms, routers and
/// towers of other senses are counted apart or not at all.
void check_left_out(const JsonObject& object, const char* field) {
  if (!object.has(field)) return;
  for (const boost::json::value& name : object.array(field)) {
    const std::string text = name.is_string() ? std::string(name.get_string()) : "";
    bool apart = text == "gate" || text.ends_with(".gate") || text == "e_score_correction_bias";
    for (const char* part : {"lm_head", "embed", "norm", "vision", "visual", "multi_modal"})
      apart |= text.find(part) != std::string::npos;
    if (!apart)
      input_error("only some matrices are quantised: not " + in_quotes(text), object.path(field), kByHand);
  }
}

StoredWeights read_bitsandbytes(const JsonObject& object) {
  check_left_out(object, "llm_int8_skip_modules");
  if (object.flag_or("load_in_8bit", false) || object.flag_or("_load_in_8bit", false))
    return {.bits = 8, .outputs = 1, .constants = kSingle};  // a scale of each output
  if (!object.flag_or("load_in_4bit", object.flag_or("_load_in_4bit", false)))
    input_error("names neither load_in_4bit nor load_in_8bit", object.where(), kByHand);
  // A scale of each 64 parameters; or 8 bits, and 32 for each 256 of those.
  const bool twice = object.flag_or("bnb_4bit_use_double_quant", false);
  return {.bits = 4, .inputs = 64, .outputs = 1, .constants = twice ? 8 + kSingle / 256 : kSingle};
}

StoredWeights read_fp8(const JsonObject& object) {
  StoredWeights stored{.bits = 8, .constants = kSingle, .product_bits = 8};  // so are the inputs
  if (!object.has("weight_block_size")) return stored;
  const boost::json::array& sizes = object.array("weight_block_size");
  const std::string where = object.path("weight_block_size");
  if (sizes.size() != 2) input_error("expected two sizes", where);
  stored.outputs = json_integer(sizes[0], where, 1, kMostGroup);
  stored.inputs = json_integer(sizes[1], where, 1, kMostGroup);
  return stored;
}

StoredWeights read_compressed_tensors(const JsonObject& object) {
  check_left_out(object, "ignore");
  const JsonObject groups = object.object("config_groups");
  if (groups.raw().size() != 1)
    input_error("more than one group of matrices is not supported", groups.where(), kByHand);
  const JsonObject group = groups.object(std::string(groups.raw().begin()->key()));
  if (const boost::json::array& targets = group.array("targets");
      targets.size() != 1 || targets[0] != "Linear")
    input_error("only the target Linear is supported", group.path("targets"), kByHand);
  const JsonObject weights = group.object("weights");
  StoredWeights stored{.bits = static_cast<double>(weights.integer("num_bits", 1, kMostBits))};
  if (group.has("input_activations") && weights.text_or("type", "int") == "float") {
    const std::uint64_t bits = group.object("input_activations").integer("num_bits", 1, kMostBits);
    stored.product_bits = static_cast<unsigned>(std::max<double>(static_cast<double>(bits), stored.bits));
  }
  const std::string strategy = weights.text("strategy");
  stored.constants = kHalf + (weights.flag_or("symmetric", true) ? 0 : stored.bits);
  if (strategy == "tensor") return stored;
  stored.outputs = 1;
  if (strategy == "group") {
    stored.inputs = group_size(weights, "group_size", 0);
  } else if (strategy != "channel") {
    input_error("strategy " + in_quotes(strategy) + " is not supported, only tensor, channel and group",
                weights.path("strategy"), kByHand);
  }
  return stored;
}

}  // namespace

double StoredWeights::matrix_bits(std::uint64_t n_inputs, std::uint64_t n_outputs) const {
  const auto groups = [](std::uint64_t all, std::uint64_t size) {
    return size == 0 ? 1.0 : std::ceil(static_cast<double>(all) / static_cast<double>(size));
  };
  return bits * static_cast<double>(n_inputs) * static_cast<double>(n_outputs) +
         constants * groups(n_inputs, inputs) * groups(n_outputs, outputs);
}

StoredWeights read_stored_weights(const JsonObject& config) {
  if (!config.has("quantization_config")) return {};
  const JsonObject object = config.object("quantization_config");
  const std::string method = object.text("quant_method");
  StoredWeights stored;
  if (method == "gptq" || method == "awq") {
    check_left_out(object, "modules_to_not_convert");
    if (object.flag_or("lm_head", false))
      input_error("a quantised head is not supported", object.path("lm_head"), kByHand);
    if (object.has("dynamic") && !object.object("dynamic").raw().empty())
      input_error("bits that differ by module are not supported", object.path("dynamic"), kByHand);
    stored.bits = static_cast<double>(object.integer("bits", 1, kMostBits));
    stored.inputs = group_size(object, "group_size", 128);
    stored.outputs = 1;
    // Both store a zero of each group, whether it is needed or not.
    stored.constants = kHalf + stored.bits;
  } else if (method == "bitsandbytes") {
    stored = read_bitsandbytes(object);
  } else if (method == "fp8") {
    check_left_out(object, "modules_to_not_convert");
    stored = read_fp8(object);
  } else if (method == "mxfp4") {
    // Experts: 4 bits, and 8 of a scale for each 32 inputs (Open Compute Project, Microscaling Formats 1.0).
    stored = {.bits = 4, .inputs = 32, .outputs = 1, .constants = 8, .experts_only = true};
  } else if (method == "compressed-tensors") {
    stored = read_compressed_tensors(object);
  } else {
    input_error(
        "weights quantised by " + in_quotes(method) + " are not supported", object.path("quant_method"),
        std::string("Supported: awq, bitsandbytes, compressed-tensors, fp8, gptq, mxfp4. ") + kByHand);
  }
  stored.method = method;
  return stored;
}

StoredWeights read_runnable_weights(const JsonObject& config) {
  if (!config.has("quantization_config")) return {};
  const JsonObject object = config.object("quantization_config");
  const std::string method = object.text("quant_method");
  if (method != "fp8" && method != "mxfp4")
    input_error("weights quantised by " + in_quotes(method) + " are not supported",
                object.path("quant_method"), "Runs read fp8 and mxfp4. Convert the checkpoint to 16 bits.");
  StoredWeights stored = method == "fp8" ? read_fp8(object) : StoredWeights{};
  if (const std::string format = object.text_or("fmt", "e4m3"); format != "e4m3")
    input_error("only e4m3 is supported, not " + in_quotes(format), object.path("fmt"));
  stored.method = method;
  return stored;
}

float widen_e4m3(std::uint8_t bits) {
  constexpr int kBias = 7, kFractionBits = 3;
  const int exponent = bits >> kFractionBits & 15, fraction = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - kBias - kFractionBits);
}

std::vector<std::uint16_t> scaled_rows(const ScaledMatrix& matrix) {
  static const std::array<float, 256> kWide = [] {
    std::array<float, 256> wide;
    for (std::size_t bits = 0; bits < wide.size(); ++bits)
      wide[bits] = widen_e4m3(static_cast<std::uint8_t>(bits));
    return wide;
  }();
  const std::uint64_t rows = matrix.columns == 0 ? 0 : matrix.numbers.size() / matrix.columns;
  const std::uint64_t in_row = (matrix.columns + matrix.block_columns - 1) / matrix.block_columns;
  std::vector<std::uint16_t> products;
  products.reserve(matrix.numbers.size());
  const std::byte* from = matrix.numbers.data();
  for (std::uint64_t row = 0; row < rows; ++row) {
    const float* scales = matrix.scales.data() + row / matrix.block_rows * in_row;
    for (std::uint64_t first = 0; first < matrix.columns; first += matrix.block_columns, ++scales)
      for (std::uint64_t i = first; i < std::min(first + matrix.block_columns, matrix.columns); ++i)
        products.push_back(narrow_bf16(kWide[static_cast<std::uint8_t>(*from++)] * *scales));
  }
  return products;
}

const GgufType& mxfp4() {
  static constexpr GgufType kType{39, "MXFP4", 32, 17};
  return kType;
}

void append_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents,
                  std::vector<std::byte>& blocks) {
  constexpr std::size_t kPairs = 16;  // of a block
  const auto number = [&](std::size_t at) { return pairs[at / 2] >> (at % 2 * 4) & std::byte{15}; };
  for (std::size_t block = 0; block < exponents.size(); ++block) {
    blocks.push_back(exponents[block]);
    for (std::size_t i = 0; i < kPairs; ++i) {
      const std::size_t first = block * 2 * kPairs + i;  // it shares a byte with the one half a block on
      blocks.push_back(number(first) | number(first + kPairs) << 4);
    }
  }
}

}  // namespace kvsim::model
