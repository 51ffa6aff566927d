#pragma once
/// For decoders that keep something made of the keys or values of resident tokens.
#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// A running model that is asked for the first token of an answer feeds the prompt's last token once more,
/// through the cut cache, and its new key and value take the place of those that the prompt left. A decoder
/// that derives this from Decoder too hears of it, where the token has a slot. What the token has received of
/// attention stays, and nothing leaves or joins.
class Renewing {
 public:
  virtual ~Renewing() = default;
  /// `step`: the slots, the token's slot with its new key and value, and its query; no attention.
  virtual void renew(const Step& step) = 0;
};

/// Passes it on to a decoder that another one asks for scores.
inline void renew(Decoder& decoder, const Step& step) {
  if (auto* const renewing = dynamic_cast<Renewing*>(&decoder)) renewing->renew(step);
}

}  // namespace kvsim::policy
