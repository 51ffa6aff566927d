#include "sim/base/text_lines.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/interruption.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/partial_file.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 18;

FileDescriptor opened(const std::string& path, const std::string& name) {
  if (path != "-") refuse_partial(path);
  FileDescriptor file(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) system_error("cannot be opened", name);
  inputs::note(file.get());
  return file;
}

}  // namespace

/// The bytes of the file, inflated where they are gzip's.
class TextLines::Input {
 public:
  Input(const std::string& path, std::string name)
      : name_(std::move(name)), file_(opened(path, name_)), block_(kReadAtOnce, '\0') {
    struct stat status {};
    if (::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode)) {
      file_bytes_ = static_cast<std::uint64_t>(status.st_size);
    } else {
      wait_.emplace();
    }
    refill();
    gzip_ = is_gzip({block_.data(), held_});
    if (gzip_ && inflateInit2(&stream_, kGzipWindow) != Z_OK) bug("zlib cannot begin");
  }
  ~Input() {
    if (gzip_) inflateEnd(&stream_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t bytes_read() const { return bytes_read_; }

  /// Writes at most `room` bytes of text to `out`; 0 behind the last.
  std::size_t read(char* out, std::size_t room) {
    if (gzip_) return inflated(out, room);
    if (used_ == held_) refill();
    const std::size_t n = std::min(room, held_ - used_);
    std::memcpy(out, block_.data() + used_, n);
    used_ += n;
    return n;
  }

 private:
  void refill() {
    used_ = held_ = 0;
    while (true) {
      const ssize_t got = ::read(file_.get(), block_.data(), block_.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) system_error("cannot be read", name_);
      held_ = static_cast<std::size_t>(got);
      bytes_read_ += held_;
      return;
    }
  }

  std::size_t inflated(char* out, std::size_t room) {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(room);
    while (stream_.avail_out == room) {
      if (used_ == held_) refill();
      if (held_ == 0) {
        if (between_members_) return 0;
        input_error("is cut off", name_);
      }
      stream_.next_in = reinterpret_cast<Bytef*>(block_.data() + used_);
      stream_.avail_in = static_cast<uInt>(held_ - used_);
      between_members_ = false;
      const int state = inflate(&stream_, Z_NO_FLUSH);
      used_ = held_ - stream_.avail_in;
      if (state == Z_STREAM_END) {
        between_members_ = true;
        if (inflateReset(&stream_) != Z_OK) bug("zlib cannot go on");
      } else if (state != Z_OK && state != Z_BUF_ERROR) {
        input_error("is no sound gzip file", name_);
      }
    }
    return room - stream_.avail_out;
  }

  std::string name_;
  FileDescriptor file_;
  std::optional<interruption::Wait> wait_;
  std::string block_;
  std::size_t used_ = 0, held_ = 0;
  std::uint64_t file_bytes_ = 0, bytes_read_ = 0;
  bool gzip_ = false, between_members_ = false;
  z_stream stream_{};
};

TextLines::TextLines(const std::string& path, std::size_t max_line)
    : name_(path == "-" ? "standard input" : path), max_line_(max_line) {
  input_ = std::make_unique<Input>(path, name_);
  file_bytes_ = input_->file_bytes();
}

TextLines::~TextLines() = default;

/// Reads more text behind what is there, and first moves that to the front; false at the end of the file.
bool TextLines::fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ > max_line_)
    input_error("is longer than the limit of " + bytes_text(max_line_),
                name_ + " line " + std::to_string(number_ + 1));
  if (buffer_.size() - end_ < kReadAtOnce) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadAtOnce));
  const std::size_t got = input_->read(buffer_.data() + end_, kReadAtOnce);
  bytes_read_ = input_->bytes_read();
  end_ += got;
  at_end_ = got == 0;
  return !at_end_;
}

bool TextLines::next(std::string_view& line) {
  std::size_t looked_at = 0;  // bytes from begin_ on without an end of line
  while (true) {
    const char* start = buffer_.data() + begin_;
    const void* found = end_ - begin_ == looked_at
                            ? nullptr
                            : std::memchr(start + looked_at, '\n', end_ - begin_ - looked_at);
    if (found != nullptr) {
      line = {start, static_cast<std::size_t>(static_cast<const char*>(found) - start)};
      begin_ += line.size() + 1;
      break;
    }
    looked_at = end_ - begin_;
    if (fill()) continue;
    if (looked_at == 0) return false;
    line = {buffer_.data() + begin_, looked_at};
    begin_ = end_;
    break;
  }
  ++number_;
  if (line.size() > max_line_)
    input_error("is longer than the limit of " + bytes_text(max_line_),
                name_ + " line " + std::to_string(number_));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

}  // namespace kvsim
