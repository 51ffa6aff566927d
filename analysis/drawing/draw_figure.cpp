#include "analysis/drawing/draw_figure.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <system_error>

#include "analysis/drawing/figure.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/partial_file.hpp"

extern char** environ;

namespace kvsim::analysis {
namespace {

[[noreturn]] void failed(const std::string& what, int error) {
  input_error(what + ": " + std::generic_category().message(error), "gnuplot");
}

/// A file in memory: no pipe to fill up, nothing to clean, no disk that may be full.
FileDescriptor scratch(const std::string& content) {
  FileDescriptor file(::memfd_create("gnuplot", MFD_CLOEXEC));
  if (!file.is_open()) failed("no temporary file", errno);
  write_all(file, content, "gnuplot");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// What the child wrote.
std::string content_of(const FileDescriptor& file) {
  std::string out;
  std::array<char, 65536> part{};
  ::lseek(file.get(), 0, SEEK_SET);
  while (true) {
    const ssize_t n = ::read(file.get(), part.data(), part.size());
    if (n < 0) failed("its output cannot be read", errno);
    if (n == 0) return out;
    out.append(part.data(), static_cast<std::size_t>(n));
  }
}

/// A drawing that exceeds the limit on file sizes must end gnuplot, which does not look whether it was
/// written; kvsim itself ignores that signal.
void end_at_file_limit(posix_spawnattr_t& attributes) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
}

/// Lines of gnuplot's complaint that say something, joined.
std::string complaint(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t begin = text.find_first_not_of(" ^\t", at);
    if (begin < end)
      out += (out.empty() ? "" : "; ") + text.substr(begin, std::min<std::size_t>(end - begin, 200));
    at = end + 1;
  }
  return out.empty() ? "it stopped without a word" : out;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) failed("lost", errno);
  return status;
}

/// What gnuplot writes to standard output for a script, byte for byte the same every time for svg. Personal
/// settings of the user are not read. Throws Error(usage) when there is no gnuplot, Error(bug) with gnuplot's
/// words when it does not understand the script.
std::string run_gnuplot(const std::string& script) {
  const FileDescriptor in = scratch(script), out = scratch(""), words = scratch("");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, words.get(), STDERR_FILENO);
  // Read as a file, not as a conversation: the first mistake ends it.
  const std::array<const char*, 4> arguments = {"gnuplot", "--default-settings", "/dev/stdin", nullptr};
  posix_spawnattr_t attributes;
  end_at_file_limit(attributes);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, "gnuplot", &files, &attributes, const_cast<char**>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT)
    usage_error("gnuplot is not installed, and it draws the figures", "",
                "On Debian: apt-get install gnuplot-nox");
  if (error != 0) failed("cannot be started", error);
  const int status = wait_for(child);
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM))
    throw Error(ErrorKind::interrupted, "interrupted");  // Ctrl-C reaches every process of the terminal
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) failed("its drawing cannot be written", EFBIG);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) bug(complaint(content_of(words)), "gnuplot");
  return content_of(out);
}

/// Overwrites the time of writing, which cairo puts into every PDF, by spaces: the same figure is the same
/// bytes. The length stays, because a PDF refers to its objects by their places.
void remove_date(std::string& pdf) {
  const std::size_t at = pdf.rfind("/CreationDate (D:");
  if (at == std::string::npos) return;
  const std::size_t end = pdf.find(')', at);
  if (end != std::string::npos) std::fill(pdf.begin() + at, pdf.begin() + end + 1, ' ');
}

}  // namespace

std::string drawing_of(const Figure& figure, Theme theme, Output output) {
  std::string drawn = run_gnuplot(gnuplot_script(figure, theme, output));
  if (output == Output::pdf) remove_date(drawn);
  return output == Output::svg ? page_svg(drawn, figure, theme) : drawn;
}

void draw_figure(const Figure& figure, const std::string& folder, const std::vector<Output>& formats,
                 const std::vector<Theme>& themes) {
  const std::string stem = folder + "/" + figure.name;
  std::ostringstream data;
  write_csv(data, figure.data);
  write_atomic(stem + ".csv", data.str());
  write_atomic(stem + ".gp", gnuplot_script(figure));
  for (const Output output : formats) {
    for (const Theme theme : themes) {
      const std::string dark = theme == Theme::dark ? ".dark" : "";
      write_atomic(stem + dark + '.' + output_name(output), drawing_of(figure, theme, output));
    }
  }
}

}  // namespace kvsim::analysis

namespace kvsim::analysis {
namespace {

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

/// The content of the first element `tag`.
void set_content(std::string& svg, const std::string& tag, const std::string& content) {
  const std::string open = "<" + tag + ">", close = "</" + tag + ">";
  const std::size_t begin = svg.find(open), end = svg.find(close);
  if (begin == std::string::npos || end == std::string::npos) return;
  svg.replace(begin + open.size(), end - begin - open.size(), content);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Titles gnuplot gives to each plot say nothing and become tooltips.
void drop_part_titles(std::string& svg) {
  for (std::size_t at = svg.find("</title>"); (at = svg.find("<title>", at)) != std::string::npos;)
    svg.erase(at, svg.find("</title>", at) + 8 - at);
}

/// gnuplot opens a group for each pen, whether or not it draws with it, on lines of their own.
void drop_empty_groups(std::string& svg) {
  std::string out;
  for (std::size_t at = 0; at < svg.size();) {
    const std::size_t end = std::min(svg.find("</g>", at), svg.size());
    out.append(svg, at, end - at);
    if (end == svg.size()) break;
    at = end + 4;
    const std::size_t ink = out.find_last_not_of(" \t\n"), tag = out.rfind('<', ink);
    if (out[ink] == '>' && out.compare(tag, 3, "<g ") == 0)
      out.erase(tag);
    else
      out += "</g>";
  }
  svg = std::move(out);
}

/// Lines of markup begin at their left. A label has no tabs: one_line() made them spaces.
void drop_indents(std::string& svg) {
  std::erase(svg, '\t');
  for (std::size_t at = 0; (at = svg.find("\n\n", at)) != std::string::npos;) svg.erase(at, 1);
}

/// The attribute that names the fonts, with the space before it; gnuplot has it beside each text.
std::string font_family(const std::string& svg) {
  const std::string name = " font-family=\"";
  const std::size_t begin = svg.find(name);
  if (begin == std::string::npos) return "";
  return svg.substr(begin, svg.find('"', begin + name.size()) + 1 - begin);
}

/// A tag with its names made unique, fonts in the first one alone, and no pen that SVG has anyway. Text
/// outside of tags may hold anything and is left alone.
std::string unique_tag(std::string tag, const std::string& prefix, const std::string& fonts) {
  if (!fonts.empty()) replace_all(tag, fonts, "");
  replace_all(tag, " stroke-linecap=\"butt\" stroke-linejoin=\"miter\"", "");
  for (const std::string before : {" id='", " id=\"", "href='#", "href=\"#", "url(#"})
    replace_all(tag, before, before + prefix);
  replace_all(tag, "<image ", "<image style='image-rendering:pixelated' ");
  replace_all(tag, "<svg ", "<svg role=\"img\"" + fonts + ' ');
  return tag;
}

std::string unique_names(const std::string& svg, const std::string& prefix) {
  const std::string fonts = font_family(svg);
  std::string out;
  for (std::size_t at = 0; at < svg.size();) {
    const std::size_t begin = std::min(svg.find('<', at), svg.size());
    const std::size_t end = std::min(svg.find('>', begin), svg.size() - 1) + 1;
    std::string text = svg.substr(at, begin - at);
    replace_all(text, "]]>", "]]&gt;");  // gnuplot leaves > alone, and this ends a section of CDATA
    out += text;
    if (begin < svg.size()) out += unique_tag(svg.substr(begin, end - begin), prefix, fonts);
    at = end;
  }
  return out;
}

/// "quality-isr_dark_".
std::string prefix_of(const Figure& figure, Theme theme) {
  std::string out;
  for (const char c : figure.name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return out + '_' + theme_name(theme) + '_';
}

}  // namespace

std::string page_svg(const std::string& svg, const Figure& figure, Theme theme) {
  std::string out = unique_names(svg, prefix_of(figure, theme));
  drop_part_titles(out);
  drop_empty_groups(out);
  std::string words = figure.reading;
  for (const std::string& more : {figure.remark, figure.command})
    if (!more.empty()) words += (words.empty() ? "" : " ") + more;
  drop_indents(out);
  set_content(out, "title", xml_text(figure.title));
  set_content(out, "desc", xml_text(words));
  return out;
}

}  // namespace kvsim::analysis
