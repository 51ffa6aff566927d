#include "sim/base/sha256.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

#include "sim/base/shortage.hpp"

namespace kvsim {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  // What it has not been able to allocate when it began, it later uses all the same.
  static const bool begun =
      OPENSSL_init_crypto(0, nullptr) == 1 && OSSL_LIB_CTX_get0_global_default() != nullptr;
  if (!begun || state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
    throw Error(kShortage, "libcrypto has no memory for a SHA-256");
}
Sha256::~Sha256() = default;

void Sha256::update(const void* data, std::size_t bytes) {
  if (EVP_DigestUpdate(state_->context, data, bytes) != 1) bug("SHA-256 update failed");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(state_->context, digest.data(), &length) != 1) bug("SHA-256 final failed");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < length; ++i) {
    out += kDigits[digest[i] >> 4];
    out += kDigits[digest[i] & 15];
  }
  return out;
}

std::string sha256_of(std::string_view text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

}  // namespace kvsim
