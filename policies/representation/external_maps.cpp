// Coordinates by matrices from a file: adapters that were trained elsewhere.
#include "policies/parts/codes/subspace.hpp"

namespace kvsim::policy::external_maps {
namespace {

SubspaceRule rule(const Params& params) {
  return {.block = params.count("heads"),
          .key_share = params.share("keys"),
          .value_share = params.share("values"),
          .rotated = params.is("rope", "after"),
          .centred = params.is("means", "file"),
          .window = params.count("window"),
          .code = coordinate_code(params, "external_maps(" + params.text() + ")"),
          .from_file = true};
}

}  // namespace

PolicySpec spec() {
  return external_subspace_spec(
      {.name = "external_maps",
       .summary = "keys and values as coordinates by the matrices of a file: trained adapters, or any others",
       .details =
           "A file holds, per layer and KV head, the matrices that make coordinates of a vector and a vector "
           "of coordinates: what CSKV or MatryoshkaKV train, which cskv and matryoshka stand in for. "
           "Datasets key_down [n_layers, n_kv_heads, rank, dim] and key_up [n_layers, n_kv_heads, dim, "
           "rank], and value_down and value_up; the rank is keys=, or values=, times the numbers of the "
           "heads that are mapped together, rounded. Of `heads` KV heads that are mapped together, each has "
           "its columns of down and its rows of up. With means=file, key_means and value_means [n_layers, "
           "n_kv_heads, dim] are subtracted first and added when reading. A token is stored as its "
           "coordinates, 16-bit floats, and its own query reads them; with `window`, tokens wait exactly, "
           "beside their coordinates, until there are so many of them. With `bits`, the coordinates of a "
           "full window become codes with a scale and the code of 0: of keys those of one coordinate "
           "together, of values those of a token, for each KV head a group.",
       .params = {required_param("file", "HDF5 file with the matrices"),
                  count_param("heads", "1", {0, 1 << 10},
                              "neighbouring KV heads that are mapped together; 0: all of the layer"),
                  share_param("keys", "0.5",
                              "of the keys' numbers that are stored, rounded: the rank of key_down"),
                  share_param("values", "0.5",
                              "of the values' numbers that are stored, rounded: the rank of value_down"),
                  choice_param("rope", "after", {"after", "before"},
                               "whether keys are mapped after or before rotation"),
                  count_param("window", "0", {0, 1 << 20}, "that wait exactly; 0: none", "tokens"),
                  choice_param("means", "none", {"none", "file"},
                               "file: subtracted before mapping and added when reading"),
                  coordinate_bits_param()},
       .layer_unit = [](const Params& params) { return params.count("heads") != 1; }},
      rule);
}

}  // namespace kvsim::policy::external_maps
