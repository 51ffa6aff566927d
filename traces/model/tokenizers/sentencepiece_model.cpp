#include "traces/model/tokenizers/sentencepiece_model.hpp"

#include "sim/base/error.hpp"

#if KVSIM_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace kvsim::model {

#if KVSIM_SENTENCEPIECE

bool has_sentencepiece() {
  return true;
}

struct SentencePieceModel::State {
  sentencepiece::SentencePieceProcessor processor;
  std::string where;
};

namespace {

/// Runs `call`; turns a status or exception of the library into an Error.
template <class Call>
void require(const std::string& where, Call call) {
  std::string problem;
  try {
    const sentencepiece::util::Status status = call();
    if (status.ok()) return;
    problem = status.message();
  } catch (const std::exception& exception) {  // the library's double array throws
    problem = exception.what();
  }
  input_error("SentencePiece: " + problem, where);
}

}  // namespace

SentencePieceModel::SentencePieceModel(const SentencePieceFile& file, const std::string& where)
    : state_(std::make_unique<State>()) {
  state_->where = where;
  require(where, [&] { return state_->processor.LoadFromSerializedProto(write_sentencepiece_file(file)); });
}

std::vector<std::int32_t> SentencePieceModel::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  require(state_->where, [&] { return state_->processor.Encode(text, &ids); });
  return ids;
}

#else

bool has_sentencepiece() {
  return false;
}

struct SentencePieceModel::State {};

SentencePieceModel::SentencePieceModel(const SentencePieceFile&, const std::string& where) {
  input_error("this kvsim was built without SentencePiece", where,
              "Install libsentencepiece-dev and build again, or pass token ids with --tokens.");
}

std::vector<std::int32_t> SentencePieceModel::encode(std::string_view) const {
  bug("a SentencePiece model without SentencePiece");
}

#endif

SentencePieceModel::~SentencePieceModel() = default;

}  // namespace kvsim::model
