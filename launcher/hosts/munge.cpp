// What of libmunge's interface is needed is declared here, so that building ddp takes none of its
// headers: names and numbers are those of munge.h, unchanged since libmunge.so.2.
#include "launcher/hosts/munge.hpp"

#include <ddp/error.hpp>

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>

namespace ddp::launcher {
namespace {

constexpr int success = 0, no_memory = 5;
constexpr int expired = 15, rewound = 16, replayed = 17;
constexpr int option_uid_restriction = 9;
// A credential of another program's is none.
constexpr std::string_view purpose = "ddp job token for ";

struct Context;
struct Library {
    int (*encode)(char** credential, Context*, const void* payload, int size) = nullptr;
    int (*decode)(const char* credential, Context*, void** payload, int* size, uid_t*,
                  gid_t*) = nullptr;
    Context* (*make)() = nullptr;
    void (*destroy)(Context*) = nullptr;
    int (*set)(Context*, int option, ...) = nullptr;
    const char* (*error_text)(int error) = nullptr;
    bool is_there = false;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
}

Library load() {
    Library munge;
    void* const library = ::dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    munge.is_there = library != nullptr && find(library, "munge_encode", munge.encode) &&
                     find(library, "munge_decode", munge.decode) &&
                     find(library, "munge_ctx_create", munge.make) &&
                     find(library, "munge_ctx_destroy", munge.destroy) &&
                     find(library, "munge_ctx_set", munge.set) &&
                     find(library, "munge_strerror", munge.error_text);
    return munge;
}

const Library& munge() {
    static const Library loaded = load();
    return loaded;
}

std::string head_of_payload(const std::string& job) { return std::string(purpose) + job + "\n"; }

std::string words_of(int error) { return std::string("munge: ") + munge().error_text(error); }

// Empty where munged makes none: then `error` says why.
std::string encode(std::string_view payload, int& error) {
    const std::unique_ptr<Context, void (*)(Context*)> context(munge().make(), munge().destroy);
    error = context ? munge().set(context.get(), option_uid_restriction, ::geteuid()) : no_memory;
    char* credential = nullptr;
    if (error == success) {
        error = munge().encode(&credential, context.get(), payload.data(),
                               static_cast<int>(payload.size()));
    }
    std::string text = error == success ? credential : "";
    std::free(credential);
    return text;
}

}  // namespace

bool has_munge() {
    int error = success;
    return munge().is_there && !encode({}, error).empty();
}

std::string encode_credential(const JobToken& token, const std::string& job) {
    std::string digits = token.text();
    std::string payload = head_of_payload(job);
    payload.reserve(payload.size() + digits.size());  // which leaves no copy of them behind
    payload += digits;
    int error = success;
    std::string credential = encode(payload, error);
    ::explicit_bzero(digits.data(), digits.size());
    ::explicit_bzero(payload.data(), payload.size());
    if (error != success) throw Error(words_of(error));
    return credential;
}

JobToken decode_credential(std::string_view credential, const std::string& job) {
    if (!munge().is_there) throw UsageError("there is no libmunge.so.2 on this host");
    void* payload = nullptr;
    int size = 0;
    uid_t user = 0;
    gid_t group = 0;
    const int error =
        munge().decode(std::string(credential).c_str(), nullptr, &payload, &size, &user, &group);
    const std::string_view text(static_cast<const char*>(payload),
                                payload != nullptr ? static_cast<std::size_t>(size) : 0);
    // One credential serves a job's hosts for as long as it runs, and clocks differ.
    const bool is_genuine =
        error == success || error == expired || error == rewound || error == replayed;
    const bool is_ours = is_genuine && user == ::geteuid();
    const std::string head = head_of_payload(job);
    std::optional<JobToken> token;
    if (is_ours && text.starts_with(head)) token = JobToken::parse(text.substr(head.size()));
    if (payload != nullptr) ::explicit_bzero(payload, static_cast<std::size_t>(size));
    std::free(payload);
    if (!is_genuine) throw UsageError(words_of(error));
    if (!is_ours) throw UsageError("its credential is of user " + std::to_string(user));
    if (!token) throw UsageError("its credential is for another job than " + job);
    return *std::move(token);
}

}  // namespace ddp::launcher
