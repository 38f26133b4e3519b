#include "launcher/metrics/metrics_door.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <utility>

namespace ddp::launcher {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t most_bytes = 8192;  // of a request

using Parser = http::request_parser<http::empty_body>;

// Whether the request has come to its end, or is none.
bool is_whole(Parser& parser, const std::string& request) {
    boost::system::error_code problem;
    parser.header_limit(most_bytes);
    parser.put(boost::asio::buffer(request), problem);
    return problem != http::error::need_more || request.size() >= most_bytes;
}

std::string answer_with(http::status status, std::string body, const char* type, bool has_body) {
    http::response<http::string_body> answer(status, 11);
    answer.set(http::field::server, "ddp-launch");
    answer.set(http::field::content_type, type);
    answer.set(http::field::cache_control, "no-store");
    if (status == http::status::method_not_allowed) answer.set(http::field::allow, "GET, HEAD");
    answer.keep_alive(false);
    answer.content_length(body.size());
    if (has_body) answer.body() = std::move(body);
    std::ostringstream text;
    text << answer;
    return std::move(text).str();
}

std::string refuse(http::status status, const std::string& why) {
    return answer_with(status, why + "\n", "text/plain; charset=utf-8", true);
}

}  // namespace

MetricsDoor::MetricsDoor(Poller& events, Poller::Tag tag, MetricsListener listener, Times times)
    : events_(events),
      tag_(tag),
      listener_(std::move(listener)),
      times_(times),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    events_.add(listener_.fd(), EPOLLIN, tag_);
}

MetricsDoor::~MetricsDoor() {
    for (Guest& guest : guests_) dismiss(guest);
    events_.remove(listener_.fd());
    listener_.remove_file();
}

void MetricsDoor::run_ready(std::size_t index, const Text& text) {
    if (index == 0) return receive_guests();
    Guest& guest = guests_.at(index - 1);
    if (!guest.fd) return;  // dismissed since
    if (guest.answer.empty()) read(guest, text);
    if (!guest.answer.empty()) write(index - 1);
}

// More than these come with the next event.
void MetricsDoor::receive_guests() {
    for (std::size_t i = 0; i < most_guests; ++i) {
        base::UniqueFd fd(
            ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd) {
            let_in(std::move(fd));
        } else if (errno == EMFILE || errno == ENFILE) {
            return refuse_one();
        } else if (errno == ENOMEM || errno == ENOBUFS) {
            return events_.change(listener_.fd(), 0, tag_);  // who waits would be news for ever
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

// Else it would be news for ever.
void MetricsDoor::refuse_one() {
    spare_.reset();
    base::UniqueFd refused(
        ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    refused.reset();
    spare_ = base::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void MetricsDoor::let_in(base::UniqueFd fd) {
    const auto now = Clock::now();
    auto slot = std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.fd; });
    if (slot == guests_.end()) {
        slot = std::ranges::min_element(guests_, {}, &Guest::came);
        if (now - slot->came < times_.patience) return;  // closed: too many ask at once
        dismiss(*slot);
    }
    const auto index = static_cast<std::size_t>(slot - guests_.begin()) + 1;
    try {
        events_.add(fd.get(), EPOLLIN, tag_ | index);
    } catch (const SystemError&) {  // no memory: closed
        return;
    }
    *slot = {.fd = std::move(fd), .came = now};
}

void MetricsDoor::read(Guest& guest, const Text& text) {
    std::array<char, most_bytes> piece;  // not zeroed
    const std::size_t room = guest.has_been_told ? most_bytes : most_bytes - guest.request.size();
    const ssize_t n = ::recv(guest.fd.get(), piece.data(), room, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return dismiss(guest);
    if (guest.has_been_told) return;
    guest.request.append(piece.data(), static_cast<std::size_t>(n));
    guest.answer = answer_to(guest.request, text);
}

// Empty: more of the request is to come.
std::string MetricsDoor::answer_to(const std::string& request, const Text& text) {
    Parser parser;
    if (!is_whole(parser, request)) return {};
    if (!parser.is_header_done()) return refuse(http::status::bad_request, "no HTTP request");
    const auto& asked = parser.get();
    const bool is_head = asked.method() == http::verb::head;
    if (asked.method() != http::verb::get && !is_head) {
        return refuse(http::status::method_not_allowed, "GET /metrics is all there is");
    }
    const std::string target(asked.target());
    if (target.substr(0, target.find('?')) != "/metrics") {
        return refuse(http::status::not_found, "see /metrics");
    }
    const bool is_open =
        std::string(asked[http::field::accept]).find("application/openmetrics-text") !=
        std::string::npos;
    const auto format = is_open ? MetricsFormat::openmetrics : MetricsFormat::text;
    Kept& kept = kept_.at(static_cast<std::size_t>(format));
    if (kept.text.empty() || Clock::now() - kept.made >= times_.fresh) {
        kept = {.made = Clock::now(), .text = text(format)};
    }
    return answer_with(http::status::ok, kept.text, content_type(format), !is_head);
}

// It is left to the guest to close: were there anything unread of what it has sent, a close would
// take back what it was told.
void MetricsDoor::write(std::size_t slot) {
    Guest& guest = guests_.at(slot);
    const ssize_t n =
        ::send(guest.fd.get(), guest.answer.data(), guest.answer.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return dismiss(guest);
    guest.answer.erase(0, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    guest.has_been_told = guest.answer.empty();
    if (guest.has_been_told) ::shutdown(guest.fd.get(), SHUT_WR);
    events_.change(guest.fd.get(), guest.has_been_told ? EPOLLIN : EPOLLOUT, tag_ | (slot + 1));
}

void MetricsDoor::dismiss(Guest& guest) {
    if (!guest.fd) return;
    events_.remove(guest.fd.get());
    guest = {};
}

}  // namespace ddp::launcher
