// kvsim config: what a study file may say.

#include "analysis/study/config/study_fields.hpp"
#include "sim/base/param_value.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kConfigExamples = R"(Examples:
  kvsim config reference
  kvsim config reference -o fields.md
)";

const char* type_text(ParamType type) {
  switch (type) {
    case ParamType::count:
      return "whole number";
    case ParamType::real:
      return "number";
    case ParamType::flag:
      return "true or false";
    case ParamType::texts:
      return "list of text";
    case ParamType::counts:
      return "list of whole numbers";
    default:
      return "text";
  }
}

std::string type_text(const analysis::Field& field) {
  switch (field.shape) {
    case analysis::FieldShape::value:
      return type_text(field.param.type);
    case analysis::FieldShape::sections:
      return "list of objects" + (field.shorthand.empty() ? "" : "; text: its " + field.shorthand);
    case analysis::FieldShape::anything:
      return "text, number or list";
    case analysis::FieldShape::section:
    case analysis::FieldShape::ignored:
      break;
  }
  return "object";
}

analysis::Records reference() {
  analysis::Records out;
  out.columns = {{"field", "", "where it stands"},
                 {"type", "", "what is written there"},
                 {"default", "", "when it is left out"},
                 {"allowed", "", "values"},
                 {"meaning", "", "what it does"}};
  for (const analysis::Field& field : analysis::study_fields()) {
    const bool value = field.shape == analysis::FieldShape::value;
    out.rows.push_back(
        {field.path, type_text(field),
         field.param.required ? "must be given" : analysis::json_line(analysis::default_of(field)),
         value ? allowed_values(field.param) : std::string(), field.param.help});
  }
  return out;
}

void write_reference(const OutputOptions& options) {
  FormattedOutput(options).commit({.analysis = "reference", .traces = {}, .records = reference()});
}

}  // namespace

void add_config_command(Command app) {
  Command command = app.add_subcommand("config", "What the file of a study may say", kConfigExamples);
  command.require_subcommand(1);
  Command page =
      command.add_subcommand("reference", "Every field of STUDY.json, with its default", kConfigExamples);
  const auto options = std::make_shared<OutputOptions>();
  add_output_options(page, *options);
  page.callback([options] { write_reference(*options); });
}

}  // namespace kvsim::tools
