#include "analysis/study/rank_messages.hpp"

#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <new>

#include "sim/base/shortage.hpp"

namespace kvsim::analysis {

BOOST_DESCRIBE_STRUCT(StudiedTrace::Cut, (), (cut, prompt, decode))
BOOST_DESCRIBE_STRUCT(StudiedTrace, (),
                      (name, content_sha256, workload, model, weights_sha256, prompt, decode, cuts, captured,
                       problem))
BOOST_DESCRIBE_ENUM(RankOrder::Kind, begin, open, task, close, stop, end)
BOOST_DESCRIBE_STRUCT(RankOrder, (), (kind, trace, task, code, text))
BOOST_DESCRIBE_ENUM(RankReport::Kind, planned, share, done, failed)
BOOST_DESCRIBE_STRUCT(RankFailure, (), (kind, problem, where, hint))
BOOST_DESCRIBE_STRUCT(RankReport, (), (kind, text, share, host, studied, notes, error))

namespace {

template <class Message>
Message parsed(const std::string& text) {
  try {
    boost::json::parse_options options;
    options.allow_invalid_utf8 = true;  // names of files may be anything
    return boost::json::value_to<Message>(boost::json::parse(text, {}, options));
  } catch (const std::exception& error) {
    bug(std::string("a rank was sent what it does not understand: ") + error.what());
  }
}

}  // namespace

std::string message_text(const RankOrder& order) {
  return boost::json::serialize(boost::json::value_from(order));
}
std::string message_text(const RankReport& report) {
  return boost::json::serialize(boost::json::value_from(report));
}
RankOrder parse_order(const std::string& text) {
  return parsed<RankOrder>(text);
}
RankReport parse_report(const std::string& text) {
  return parsed<RankReport>(text);
}

RankReport failed_report(const Error& error) {
  RankReport out;
  out.kind = RankReport::Kind::failed;
  out.error = RankFailure{static_cast<int>(error.kind()), error.problem(), error.where(), error.hint()};
  return out;
}

void tell_leader(Ranks& ranks, RankReport report) {
  report.host = ranks.host();
  ranks.send(0, message_text(report));
}

void attempt(Ranks& ranks, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    tell_leader(ranks, failed_report(error));
  } catch (const std::bad_alloc&) {
    tell_leader(ranks, failed_report(Error(kShortage, "out of memory")));
  }
}

Error error_of(std::size_t rank, const RankReport& report) {
  const RankFailure& error = report.error.value();
  const auto kind = static_cast<ErrorKind>(error.kind);
  std::string where = error.where;
  if (rank != 0 && kind != ErrorKind::interrupted)
    where = "rank " + std::to_string(rank) + " on " + report.host + (where.empty() ? "" : ": " + where);
  return {kind, error.problem, where, error.hint};
}

}  // namespace kvsim::analysis
