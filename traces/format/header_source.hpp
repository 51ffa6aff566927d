#pragma once
/// A trace of which only the header is known: what can be planned and estimated before a run.
#include <string>
#include <utility>

#include "sim/base/error.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

class HeaderSource final : public Source {
 public:
  explicit HeaderSource(Header header) : header_(std::move(header)) {}

  const Header& header() const override { return header_; }
  std::string name() const override { return "a run to come"; }
  std::string content_sha256() const override { return {}; }
  void read(Tensor, std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t,
            std::span<float>) const override {
    nothing();
  }
  void read_output_weights(std::uint32_t, std::uint32_t, std::span<float>) const override { nothing(); }
  void read_column_statistics(std::uint32_t, std::uint32_t, std::span<float>,
                              std::span<float>) const override {
    nothing();
  }

 private:
  [[noreturn]] static void nothing() { bug("a trace of which only the header is known was read"); }

  Header header_;
};

}  // namespace kvsim::trace
