// What papers say that their representations take, beside the ledgers of the representations here.
#include <string>

#include "policies/api/composition.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace representations_numbers {

/// The lengths, the batch and the way of counting that were chosen for ZipCache's three ratios.
constexpr const char* kZipCache = "ZipCache, ratios";
constexpr const char* kKivi = "KIVI, ratio";

policy::Ledger ledger(const Inputs& inputs, const std::string& representation,
                      const policy::StorageShape& shape, std::uint64_t tokens) {
  return policy::parse_composition("full+" + representation, inputs.policies())
      .representation->ledger(shape, tokens, 0);
}

double exact_bits(const policy::StorageShape& shape, std::uint64_t tokens) {
  return static_cast<double>(policy::exact_ledger(shape, tokens).bits());
}

double ratio(const Inputs& inputs, const std::string& representation, const policy::StorageShape& shape,
             std::uint64_t tokens) {
  return exact_bits(shape, tokens) /
         static_cast<double>(ledger(inputs, representation, shape, tokens).bits());
}

/// One head of 128, and a whole layer of 4096 as one vector.
constexpr policy::StorageShape kHead{1, 128, 128, 16}, kLayer{1, 4096, 4096, 16};

void mikv(Entries& entries, const Inputs& inputs) {
  constexpr struct {
    const char *params, *what, *by_hand, *published;
  } kRows[] = {{"hi=16", "a fifth of the tokens in 16 bits, the others in 2", "32.5", "33"},
               {"hi=8", "a fifth of the tokens in 8 bits, the others in 2", "23.125", "23"},
               {"hi=4", "a fifth of the tokens in 4 bits, the others in 2", "18.125", "18"},
               {"share=0", "all tokens in 2 bits", "15.625", "16"}};
  constexpr std::uint64_t kTokens = 1000;
  const auto share = [&](const std::string& params) {
    const policy::Ledger of = ledger(inputs, "mikv(" + params + ")", kHead, kTokens);
    return 100 * static_cast<double>(of.exact + of.codes + of.parameters) / exact_bits(kHead, kTokens);
  };
  for (const auto& row : kRows) {
    const std::string what = std::string("MiKV, ") + row.what + ", share of the cache";
    entries.evidence(Evidence::derived)
        .exact(what + ", by hand", row.by_hand, "%", share(row.params),
               "without the classes and the balancer");
    entries.evidence(Evidence::recalled)
        .within(aim::kBytes, what, row.published, "%", share(row.params),
                "predicted: nothing was chosen for it. As others quote the paper");
  }
}

/// A batch counts as one sequence as long as all of them: one set of channel parameters, as the authors
/// count.
double zipcache(Inputs& inputs, const std::string& salient, std::uint64_t length) {
  const auto batch = static_cast<std::uint64_t>(inputs.fitted(kZipCache, 8));
  const std::uint64_t tokens = batch * length;
  const policy::Ledger of = ledger(inputs, "zipcache(" + salient + ")", kLayer, tokens);
  return exact_bits(kLayer, tokens) / static_cast<double>(of.bits() - of.indices);
}

void zipcache(Entries& entries, Inputs& inputs) {
  const char* chosen =
      "fitted: batch 8, the length, 4096 channels and a set of parameters per class were chosen among "
      "settings; "
      "without classes";
  entries.evidence(Evidence::verified)
      .of(kZipCache)
      .exact("ZipCache, 60 % salient, 840 tokens, compression", "4.98", "x", zipcache(inputs, "", 840),
             chosen);
  entries.evidence(Evidence::recalled);
  entries.exact("ZipCache, 70 % salient, 840 tokens, compression", "4.69", "x",
                zipcache(inputs, "share=0.7", 840), chosen);
  entries.within(aim::kBytes, "ZipCache, 60 % salient, 157 tokens, compression", "4.94", "x",
                 zipcache(inputs, "", 157),
                 std::string(chosen) + "; a share of the tokens is rounded down here");
  entries.exact("ZipCache, keys per channel and values levelled, 4 bits, compression", "4.00", "x",
                zipcache(inputs, "share=1", 4096), "fitted: 8 sequences of 4096 tokens of 4096 channels");
  entries.of("");
}

void plain(Entries& entries, const Inputs& inputs) {
  const char* remembered = "fitted: the setting is remembered, not read";
  entries.evidence(Evidence::recalled);
  entries.exact("4 bits in groups of 32, compression", "3.2", "x",
                ratio(inputs, "scalar(bits=4,group=32)", kHead, 1000), remembered);
  entries.exact("4 bits per token of 4096 channels, compression", "3.99", "x",
                ratio(inputs, "scalar(bits=4,group=0)", kLayer, 1000), remembered);
}

void kivi(Entries& entries, Inputs& inputs) {
  const auto bits = [&](std::uint64_t tokens) {
    return static_cast<double>(ledger(inputs, "kivi(bits=2)", kHead, tokens).bits()) /
           static_cast<double>(tokens * 256);
  };
  const char* windows = "groups of 32, windows of 128";
  entries.evidence(Evidence::derived);
  entries.exact("KIVI in 2 bits, 2048 tokens", "3.41", "bits per number", bits(2048), windows);
  entries.exact("KIVI in 2 bits, 8192 tokens", "3.10", "bits per number", bits(8192), windows);
  entries.exact("KIVI in 2 bits, 16384 tokens", "3.051", "bits per number", bits(16384), windows);
  entries.exact("KIVI in 2 bits, 32768 tokens", "3.025", "bits per number", bits(32768), windows);
  entries.evidence(Evidence::recalled)
      .exact("KIVI in 2 bits, a table of 2K to 32K tokens", "3.05", "bits per number",
             bits(static_cast<std::uint64_t>(inputs.fitted(kKivi, 16384))),
             "fitted: the length is not given; 16384 of the four above agrees. As others quote the paper");
}

void kvquant(Entries& entries, const Inputs& inputs) {
  constexpr struct {
    const char *bits, *published, *compression;
  } kRows[] = {{"4", "4.33", "3.7"}, {"3", "3.33", "4.8"}, {"2", "2.33", "6.9"}};
  constexpr std::uint64_t kTokens = 100000;
  entries.evidence(Evidence::recalled);
  for (const auto& row : kRows) {
    const std::string part = std::string("kvquant(file=none,bits=") + row.bits + ")";
    const std::string what = std::string("KVQuant in ") + row.bits + " bits, 1 % outliers, 4096 channels";
    const double bits = static_cast<double>(ledger(inputs, part, kLayer, kTokens).bits()) /
                        static_cast<double>(kTokens * (kLayer.key_dim + kLayer.value_dim));
    entries.within(aim::kBytes, what, row.published, "bits per number", bits,
                   "predicted: nothing was chosen for it. As others quote the paper");
    entries.within(aim::kBytes, what + ", compression", row.compression, "x", 16 / bits,
                   "predicted: nothing was chosen for it. As others quote the paper");
  }
}

/// A layer's windows are a small part of so many tokens.
void qjl(Entries& entries, const Inputs& inputs) {
  constexpr std::uint64_t kTokens = 1 << 20;
  const double bits = static_cast<double>(ledger(inputs, "qjl", kHead, kTokens).bits()) /
                      static_cast<double>(kTokens * (kHead.key_dim + kHead.value_dim));
  entries.evidence(Evidence::derived)
      .exact("QJL, 256 signs and 128 of outliers, by hand", "3.13", "bits per number", bits,
             "fitted: the released script has 256 signs of outliers; the authors say 3 bits");
}

void minicache(Entries& entries, const Inputs& inputs) {
  constexpr std::uint64_t kTokens = 1000;
  constexpr std::uint32_t kLayers = 32;
  const auto compression = [&](const std::string& from) {
    double bits = 0;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      policy::StorageShape shape = kHead;
      shape.layer = layer;
      shape.n_layers = kLayers;
      bits += static_cast<double>(ledger(inputs, "minicache(from=" + from + ")", shape, kTokens).bits());
    }
    return kLayers * exact_bits(kHead, kTokens) / bits;
  };
  const char* nothing_apart = "nothing stays apart";
  entries.evidence(Evidence::derived);
  entries.exact("MiniCache, 32 layers, pairs from layer 16, by hand", "1.326", "x", compression("0.5"),
                nothing_apart);
  entries.exact("MiniCache, 32 layers, pairs from layer 10, by hand", "1.51", "x", compression("0.3125"),
                nothing_apart);
  entries.exact("MiniCache, 32 layers, pairs from layer 8, by hand", "1.585", "x", compression("0.25"),
                nothing_apart);
  entries.evidence(Evidence::recalled)
      .within(aim::kBytes, "MiniCache, 32 layers, pairs from the middle on, compression", "1.53", "x",
              compression("0.5"),
              "disagrees: pairs of the upper half cannot take less than three quarters. As others quote the "
              "paper");
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  // Of a key's 128 channels 51 are dropped; the newest 32 tokens and the mask are lost in so many.
  entries.within(aim::kBytes,
                 "ThinK, two fifths of the key channels dropped, saved of the cache (printed: over)", "20",
                 "%", 100 * (1 - 1 / ratio(inputs, "think(ratio=0.4)", kHead, 100000)),
                 "predicted: nothing was chosen for it");
  mikv(entries, inputs);
  zipcache(entries, inputs);
  plain(entries, inputs);
  kvquant(entries, inputs);
  qjl(entries, inputs);
  minicache(entries, inputs);
  kivi(entries, inputs);
  return entries.take();
}

}  // namespace representations_numbers

Source representations_source() {
  return {"What representations take",
          "MiKV (arXiv 2402.18096), ThinK (arXiv 2407.21018), ZipCache (arXiv 2405.14256), KIVI (arXiv "
          "2402.02750), KVQuant (arXiv 2401.18079), QJL (arXiv 2406.03482), MiniCache (arXiv 2405.14366).",
          {"By the ledgers that replay and closed loop count by: codes, scales, windows, masks.",
           "A note says whether the agreement was predicted, every input being known before, or fitted, some "
           "input "
           "having been chosen because it agrees."},
          {},
          representations_numbers::checks};
}

}  // namespace kvsim::cost
