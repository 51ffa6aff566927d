#include "traces/model/tokenizers/sentencepiece_file.hpp"

#include <bit>
#include <cmath>

#include "sim/base/error.hpp"
#include "traces/model/tokenizers/text_normalizer.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {
namespace {

constexpr std::size_t kMaxPieces = 1'000'000, kMaxPieceBytes = 1024;
constexpr const char* kUseTokens = "Tokenize the prompt elsewhere and pass the ids with --tokens.";

// Field numbers of sentencepiece_model.proto.
namespace model {
constexpr std::uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3;
}
namespace piece {
constexpr std::uint32_t kText = 1, kScore = 2, kKind = 3;
}
namespace trainer {
constexpr std::uint32_t kMethod = 3, kSpaceIsSuffix = 24, kByteFallback = 35;
constexpr std::uint64_t kUnigram = 1, kBytePairs = 2;
}  // namespace trainer
namespace normalizer {
constexpr std::uint32_t kCharsmap = 2, kDummyPrefix = 3, kRemoveExtraSpaces = 4, kEscapeSpaces = 5;
}

SentencePieceFile::Piece parse_piece(std::string_view message, const std::string& where) {
  SentencePieceFile::Piece result;
  WireReader reader(message, where);
  for (WireField field; reader.next(field);) {
    if (field.number == piece::kText && field.is_bytes) {
      result.text = field.bytes;
    } else if (field.number == piece::kScore && !field.is_bytes) {
      result.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.integer));
    } else if (field.number == piece::kKind && !field.is_bytes) {
      if (field.integer < 1 || field.integer > 6) input_error("a piece of unknown type", where);
      result.kind = static_cast<SentencePieceFile::Kind>(field.integer);
    }
  }
  if (result.text.empty() || result.text.size() > kMaxPieceBytes)
    input_error("a piece must have 1 to 1024 bytes", where);
  if (result.text.find('\0') != std::string::npos) input_error("a piece with a zero byte", where);
  require_utf8(result.text, where);
  if (!std::isfinite(result.score)) input_error("a piece whose score is not a number", where);
  return result;
}

void parse_trainer(std::string_view message, const std::string& where, SentencePieceFile& out) {
  WireReader reader(message, where);
  for (WireField field; reader.next(field);) {
    if (field.is_bytes) continue;
    if (field.number == trainer::kMethod) {
      if (field.integer != trainer::kUnigram && field.integer != trainer::kBytePairs)
        input_error("a model of words or characters is not supported", where, kUseTokens);
      out.merges = field.integer == trainer::kBytePairs;
    } else if (field.number == trainer::kByteFallback) {
      out.byte_fallback = field.integer != 0;
    } else if (field.number == trainer::kSpaceIsSuffix && field.integer != 0) {
      input_error("treat_whitespace_as_suffix is not supported", where, kUseTokens);
    }
  }
}

void parse_normalizer(std::string_view message, const std::string& where, SentencePieceFile& out) {
  WireReader reader(message, where);
  for (WireField field; reader.next(field);) {
    if (field.is_bytes) {
      if (field.number == normalizer::kCharsmap) out.charsmap = field.bytes;
    } else if (field.number == normalizer::kDummyPrefix) {
      out.add_dummy_prefix = field.integer != 0;
    } else if (field.number == normalizer::kRemoveExtraSpaces) {
      out.remove_extra_whitespaces = field.integer != 0;
    } else if (field.number == normalizer::kEscapeSpaces) {
      out.escape_whitespaces = field.integer != 0;
    }
  }
}

}  // namespace

SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& where) {
  SentencePieceFile file;
  WireReader reader(bytes, where);
  for (WireField field; reader.next(field);) {
    if (!field.is_bytes) continue;
    if (field.number == model::kPieces) {
      if (file.pieces.size() == kMaxPieces) input_error("more than 1000000 pieces", where);
      file.pieces.push_back(parse_piece(field.bytes, where + " piece " + std::to_string(file.pieces.size())));
    } else if (field.number == model::kTrainer) {
      parse_trainer(field.bytes, where + " trainer_spec", file);
    } else if (field.number == model::kNormalizer) {
      parse_normalizer(field.bytes, where + " normalizer_spec", file);
    }
  }
  if (file.pieces.empty()) input_error("no pieces: not a SentencePiece model", where);
  if (!file.charsmap.empty()) check_charsmap(file.charsmap, where + " precompiled_charsmap");
  return file;
}

std::string write_sentencepiece_file(const SentencePieceFile& file) {
  std::string out;
  for (const SentencePieceFile::Piece& entry : file.pieces) {
    std::string message;
    put_bytes(message, piece::kText, entry.text);
    put_float(message, piece::kScore, entry.score);
    put_integer(message, piece::kKind, static_cast<std::uint64_t>(entry.kind));
    put_bytes(out, model::kPieces, message);
  }
  std::string trainer_spec, normalizer_spec;
  put_integer(trainer_spec, trainer::kMethod, file.merges ? trainer::kBytePairs : trainer::kUnigram);
  put_integer(trainer_spec, trainer::kByteFallback, file.byte_fallback);
  put_bytes(out, model::kTrainer, trainer_spec);
  if (!file.charsmap.empty()) put_bytes(normalizer_spec, normalizer::kCharsmap, file.charsmap);
  put_integer(normalizer_spec, normalizer::kDummyPrefix, file.add_dummy_prefix);
  put_integer(normalizer_spec, normalizer::kRemoveExtraSpaces, file.remove_extra_whitespaces);
  put_integer(normalizer_spec, normalizer::kEscapeSpaces, file.escape_whitespaces);
  put_bytes(out, model::kNormalizer, normalizer_spec);
  return out;
}

namespace {

constexpr unsigned kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

void put_varint(std::string& message, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message += static_cast<char>(0x80 | (value & 0x7f));
  message += static_cast<char>(value);
}

void put_tag(std::string& message, std::uint32_t number, unsigned type) {
  put_varint(message, static_cast<std::uint64_t>(number) << 3 | type);
}

}  // namespace

std::uint64_t WireReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  input_error("a number without an end", where_);
}

std::uint64_t WireReader::fixed(std::size_t bytes) {
  if (rest_.size() < bytes) input_error("a field runs past the end", where_);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << 8 * i;
  rest_.remove_prefix(bytes);
  return value;
}

bool WireReader::next(WireField& field) {
  if (rest_.empty()) return false;
  const std::uint64_t tag = varint();
  if (tag >> 3 == 0 || tag >> 3 >= 1U << 29) input_error("a field without a number", where_);
  field = {.number = static_cast<std::uint32_t>(tag >> 3)};
  switch (tag & 7) {
    case kVarint:
      field.integer = varint();
      return true;
    case kFixed64:
      field.integer = fixed(8);
      return true;
    case kFixed32:
      field.integer = fixed(4);
      return true;
    case kBytes: {
      const std::uint64_t length = varint();
      if (length > rest_.size()) input_error("a field runs past the end", where_);
      field.is_bytes = true;
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      return true;
    }
    default:
      input_error("a field of unknown type", where_);
  }
}

void put_integer(std::string& message, std::uint32_t number, std::uint64_t value) {
  put_tag(message, number, kVarint);
  put_varint(message, value);
}

void put_float(std::string& message, std::uint32_t number, float value) {
  put_tag(message, number, kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (unsigned shift = 0; shift < 32; shift += 8) message += static_cast<char>(bits >> shift & 0xff);
}

void put_bytes(std::string& message, std::uint32_t number, std::string_view bytes) {
  put_tag(message, number, kBytes);
  put_varint(message, bytes.size());
  message.append(bytes);
}

}  // namespace kvsim::model
