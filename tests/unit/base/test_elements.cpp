// Tensors passed on in their own type.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "sim/base/elements.hpp"

namespace kvsim::test_elements {

TEST_CASE("elements of the wanted type are copied bit by bit, others are converted") {
  // 1.0 + 2^-9 lies between two bf16 (steps of 2^-7 at 1): below half a step, so it rounds down to 1.
  const std::vector<float> values{1.0F, -2.5F, 1.0F + 0x1p-9F, 1e30F};
  const Elements floats = values;
  std::vector<std::uint16_t> bf16(4), f16(4), again(4);
  floats.store(Elem::bf16, bf16.data());
  CHECK((bf16 == std::vector<std::uint16_t>{0x3f80, 0xc020, 0x3f80, 0x714a}));
  const Elements stored(Elem::bf16, bf16.data(), bf16.size());
  CHECK((stored.floats() == std::vector<float>{1.0F, -2.5F, 1.0F, widen_bf16(0x714a)}));
  stored.store(Elem::f16, f16.data());  // 1e30 is beyond f16
  CHECK((f16 == std::vector<std::uint16_t>{0x3c00, 0xc100, 0x3c00, 0x7c00}));

  // A NaN with a payload shows that nothing is computed on the way.
  const std::vector<std::uint16_t> odd{0x7f81, 0xffff, 0x0001, 0x8000};
  Elements(Elem::bf16, odd.data(), 4).store(Elem::bf16, again.data());
  CHECK((again == odd));
}

TEST_CASE("subspans of elements, at any address and of any length") {
  std::vector<float> values;
  for (int i = 0; i < 3000; ++i) values.push_back(static_cast<float>(i % 128));  // exact in bf16
  std::vector<unsigned char> bytes(2 * values.size() + 1);
  narrow(Elem::bf16, values.data(), values.size(), bytes.data() + 1);
  const Elements all(Elem::bf16, bytes.data() + 1, values.size());
  CHECK((all.floats() == values));
  CHECK(
      (all.subspan(1500, 1300).floats() == std::vector<float>(values.begin() + 1500, values.begin() + 2800)));
  std::vector<float> floats(1300);
  all.subspan(1500, 1300).store(Elem::f32, floats.data());
  CHECK((floats == all.subspan(1500, 1300).floats()));
  CHECK(Elements().floats().empty());
  Elements().store(Elem::bf16, nullptr);
}

}  // namespace kvsim::test_elements
