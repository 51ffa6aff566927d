// kvsim config: what a study file may say.
#include <iostream>
#include <memory>
#include <sstream>

#include "analysis/results/document.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "tools/commands/command.hpp"

namespace kvsim::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  kvsim config reference
  kvsim config reference --format md
)";

const char* type_text(analysis::FieldType type) {
  using enum analysis::FieldType;
  switch (type) {
    case text:
      return "text";
    case whole:
      return "whole number";
    case number:
      return "number";
    case flag:
      return "true or false";
    case texts:
      return "list of text";
    case wholes:
      return "list of whole numbers";
    case section:
      return "object";
    case sections:
      return "list of objects";
    case anything:
      return "text, number or list";
    case ignored:
      return "object";
  }
  return "";
}

analysis::Records reference() {
  analysis::Records out;
  out.columns = {{"field", "", "where it stands"},
                 {"type", "", "what is written there"},
                 {"default", "", "when it is left out"},
                 {"allowed", "", "values"},
                 {"meaning", "", "what it does"}};
  for (const analysis::Field& field : analysis::study_fields()) {
    std::string type = type_text(field.type);
    if (*field.shorthand != '\0') type += std::string("; text: its ") + field.shorthand;
    out.rows.push_back({std::string(field.path), type,
                        *field.standard == '\0' ? std::string("must be given") : std::string(field.standard),
                        std::string(field.allowed), std::string(field.description)});
  }
  return out;
}

void print_reference(const std::string& format) {
  std::ostringstream text;
  analysis::write_document(text, analysis::parse_format(format),
                           {.analysis = "reference", .traces = {}, .records = reference()});
  std::cout << text.str();
}

}  // namespace

void add_config_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("config", "What the file of a study may say");
  command->footer(kExamples);
  command->require_subcommand(1);
  CLI::App* page = command->add_subcommand("reference", "Every field of STUDY.json, with its default");
  page->footer(kExamples);
  const auto format = std::make_shared<std::string>("table");
  page->add_option("--format", *format, "table | csv | json | jsonl | md")->capture_default_str();
  page->callback([format] { print_reference(*format); });
}

}  // namespace kvsim::tools
