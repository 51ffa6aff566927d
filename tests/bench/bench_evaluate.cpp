// The closed loop: 64 cells in step against 64 runs of one cell each, on the sample model with a prompt of
// about 1,000 tokens and 8 answer tokens; the decode steps alone, without the prompt that 64 runs process
// again; and 16 cells that process the prompt themselves.
#include <cstdlib>
#include <string>

#include "analysis/loop/evaluation.hpp"
#include "policies/builtin.hpp"
#include "sim/base/files.hpp"
#include "tests/bench/paired.hpp"
#include "traces/capture/prompt_run.hpp"
#include "traces/model/tokenizer.hpp"

using namespace kvsim;

namespace {

const std::string kModel = KVSIM_SOURCE_DIR "/traces/sample/model";
const std::string kPrompt = KVSIM_SOURCE_DIR "/traces/sample/prompts/needle-1000-one.txt";

std::vector<sim::Cell> cells(const std::vector<const char*>& policies) {
  std::vector<sim::Cell> out;
  for (const char* policy : policies)
    for (const char* budget : {"5%", "10%", "15%", "20%", "30%", "40%", "50%", "75%"})
      out.push_back({policy::parse_composition(policy, policy::builtin()), sim::parse_budget(budget)});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 3;
  const std::vector<sim::Cell> all =
      cells({"h2o", "snapkv", "keydiff", "tova", "l2_norm", "streaming_llm", "snapkv+pyramid", "random"});
  capture::WorkloadItem item;
  item.id = "needle";
  item.prompt = read_file(kPrompt, 1 << 20);

  analysis::Evaluation model(kModel);
  analysis::EvaluationOptions options;
  options.modes = {sim::LoopMode::teacher};
  options.threads = 1;
  const auto answer = [&](const std::vector<sim::Cell>& some) {
    options.cells = some;
    Progress progress;
    model.answer({&item, 1}, options, progress);
  };
  const auto alone = [&] {
    for (const sim::Cell& cell : all) answer({cell});
  };
  bench::report("64 cells, one by one / together", bench::paired(
                                                       alone, [&] { answer(all); }, pairs));

  const std::vector<sim::Cell> streaming = cells({"h2o.stream", "hashevict"});
  bench::report("16 cells that stream the prompt, one by one / together",
                bench::paired(
                    [&] {
                      for (const sim::Cell& cell : streaming) answer({cell});
                    },
                    [&] { answer(streaming); }, pairs));

  // The prompt is read once for both; ranking it and the steps remain.
  const model::ModelConfig config = model::load_model_config(kModel);
  const model::Checkpoint checkpoint(kModel);
  const model::Weights weights = model::load_weights(checkpoint, config);
  const model::Tokenizer tokenizer = model::load_tokenizer(kModel);
  capture::Prompt prompt;
  prompt.ids = tokenizer.encode(item.prompt);
  Progress progress;
  const trace::MemoryTrace trace =
      capture::run_prompt(prompt, config, weights,
                          {.model_dir = kModel, .positions = prompt.ids.size() + 8, .threads = 1}, progress);
  const trace::Sequence sequence(trace);
  const auto loop = [&](const std::vector<sim::Cell>& some) {
    sim::LoopRequest request;
    request.cells = some;
    request.modes = {sim::LoopMode::teacher};
    request.threads = 1;
    Progress steps;
    sim::closed_loop(sequence, prompt.ids, config, weights, request, steps);
  };
  bench::report("the same without the prompt's pass", bench::paired(
                                                          [&] {
                                                            for (const sim::Cell& cell : all) loop({cell});
                                                          },
                                                          [&] { loop(all); }, pairs));
  return 0;
}
