// No stream holds the digits on their way, and no string but text(): those leave copies behind.
#include "launcher/hosts/job_token.hpp"

#include "base/printable.hpp"
#include "base/random.hpp"
#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::launcher {
namespace {

constexpr std::size_t token_digits = 2 * JobToken::size;
// One byte more than a token and its newline: a longer file is seen to be longer.
constexpr std::size_t most_file_bytes = token_digits + 2;

[[noreturn]] void refuse_token_file(const std::string& path, const std::string& why) {
    throw UsageError(std::string(JobToken::variable) + ": " + base::printable(path) + " " + why);
}

int value_of_digit(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

// Of the open file, so that it is the one that is read.
void require_private(const std::string& path, int fd) {
    struct stat about {};
    if (::fstat(fd, &about) != 0)
        refuse_token_file(path, std::string("cannot be read: ") + strerror(errno));
    if (!S_ISREG(about.st_mode))
        refuse_token_file(path, "is no regular file; name the file of the token");
    if (about.st_uid != ::geteuid() && about.st_uid != 0) {
        refuse_token_file(path,
                          "belongs to user " + std::to_string(about.st_uid) +
                              ", who could change it; make a copy of your own with mode 0600");
    }
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        refuse_token_file(
            path,
            "can be read or written by other users; chmod 600 it, and make a new token "
            "if somebody may have read this one");
    }
}

std::size_t read_all(const std::string& path, int fd, std::span<char> into) {
    std::size_t count = 0;
    while (count < into.size()) {
        const ssize_t got = ::read(fd, into.data() + count, into.size() - count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse_token_file(path, std::string("cannot be read: ") + strerror(errno));
        if (got == 0) break;
        count += static_cast<std::size_t>(got);
    }
    return count;
}

}  // namespace

JobToken::~JobToken() { ::explicit_bzero(bytes_.data(), bytes_.size()); }

std::optional<JobToken> JobToken::parse(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (text.size() != token_digits) return std::nullopt;
    JobToken token;
    for (std::size_t i = 0; i < size; ++i) {
        const int high = value_of_digit(text[2 * i]);
        const int low = value_of_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        token.bytes_[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return token;
}

JobToken JobToken::read(const std::string& path) {
    // A pipe or a device is refused, not waited for.
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) refuse_token_file(path, std::string("cannot be opened: ") + strerror(errno));
    require_private(path, fd.get());
    std::array<char, most_file_bytes> text{};
    const std::size_t count = read_all(path, fd.get(), text);
    const std::optional<JobToken> token = parse({text.data(), count});
    ::explicit_bzero(text.data(), text.size());
    if (!token) {
        refuse_token_file(path,
                          "holds no token, which is 64 hex digits and at most a newline; make one: "
                          "(umask 077; openssl rand -hex 32 >FILE)");
    }
    return *token;
}

JobToken JobToken::make() {
    JobToken token;
    for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
        const std::uint64_t bits = base::random_bits();
        ::memcpy(token.bytes_.data() + i, &bits, sizeof bits);
    }
    return token;
}

std::string JobToken::text() const {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * size);
    for (const std::uint8_t byte : bytes_) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::optional<JobToken> job_token(const EnvLookup& environment) {
    const std::optional<std::string> path = environment(JobToken::variable);
    if (!path) return std::nullopt;
    if (path->empty()) {
        throw UsageError(std::string(JobToken::variable) +
                         " is empty; name the file of the token, or unset it");
    }
    return JobToken::read(*path);
}

}  // namespace ddp::launcher
