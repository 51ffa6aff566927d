#pragma once
/// A representation that observes nothing of the prompt but what its codecs do.
#include <memory>
#include <tuple>

#include "policies/api/representation.hpp"

namespace kvsim::policy {

/// Its codecs are CodecOf(given...).
template <class CodecOf, class... Given>
class PlainRepresentation final : public Representation {
 public:
  explicit PlainRepresentation(const Given&... given) : given_(given...) {}
  std::unique_ptr<Codec> codec() const override {
    return std::apply([](const auto&... given) { return std::make_unique<CodecOf>(given...); }, given_);
  }

 private:
  std::tuple<Given...> given_;
};

}  // namespace kvsim::policy
