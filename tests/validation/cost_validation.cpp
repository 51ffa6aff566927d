// Numbers that papers and logs print, and what the cost models answer. The argument is csv (a row per number), md (a page), or
// nothing: a summary. The exit code is 1 when one is not as expected.
#include <iostream>
#include <string_view>

#include "policies/builtin.hpp"
#include "tests/validation/validation_table.hpp"

int main(int argc, char** argv) {
  using namespace kvsim;
  const std::string_view form = argc > 1 ? argv[1] : "";
  const policy::Registry& policies = policy::builtin();
  if (form == "csv")
    analysis::write_csv(std::cout, analysis::validation_records(policies));
  else if (form == "md")
    analysis::write_validation_page(std::cout, policies);
  else if (form.empty())
    analysis::write_validation_table(std::cout, policies);
  else
    return 2;
  return analysis::validated(policies) ? 0 : 1;
}
