// What of OpenSSL's interface is needed is declared here, so that building ddp takes none of its
// headers: names, types and numbers are those of ssl(7) in all of OpenSSL 3, whose functions keep
// their meaning for as long as the library is called libssl.so.3.
#include "launcher/hosts/tls_session.hpp"

#include <ddp/error.hpp>

#include <dlfcn.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ddp::launcher {
namespace libssl {

struct Ssl;
struct SslCtx;
struct SslMethod;
struct SslCipher;
struct SslSession;
struct Bio;
struct BioMethod;

using UseSession = int (*)(Ssl*, const void* digest, const unsigned char** id, std::size_t* id_size,
                           SslSession**);
using FindSession = int (*)(Ssl*, const unsigned char* id, std::size_t id_size, SslSession**);

// Named as there, in the house's letters.
struct Library {
    unsigned long (*version_num)();
    int (*init)(std::uint64_t options, const void* settings);
    unsigned char* (*sha256)(const unsigned char* data, std::size_t size, unsigned char* digest);
    void (*clear_error)();
    unsigned long (*peek_error)();
    const char* (*reason_error_string)(unsigned long error);
};
struct Bios {
    const BioMethod* (*s_mem)();
    Bio* (*create)(const BioMethod*);
    int (*free)(Bio*);
    int (*read)(Bio*, void* data, int size);
    int (*write)(Bio*, const void* data, int size);
};
struct Contexts {
    const SslMethod* (*tls_method)();
    SslCtx* (*create)(const SslMethod*);
    void (*free)(SslCtx*);
    long (*ctrl)(SslCtx*, int command, long number, void* pointer);
    std::uint64_t (*set_options)(SslCtx*, std::uint64_t);
    std::uint64_t (*clear_options)(SslCtx*, std::uint64_t);
    int (*set_ciphersuites)(SslCtx*, const char* names);
    int (*set_num_tickets)(SslCtx*, std::size_t);
    void (*set_psk_use_session_callback)(SslCtx*, UseSession);
    void (*set_psk_find_session_callback)(SslCtx*, FindSession);
};
struct Connections {
    Ssl* (*create)(SslCtx*);
    void (*free)(Ssl*);
    void (*set_bio)(Ssl*, Bio* in, Bio* out);
    void (*set_connect_state)(Ssl*);
    void (*set_accept_state)(Ssl*);
    void (*set_verify)(Ssl*, int mode, int (*)(int, void*));
    int (*set_ex_data)(Ssl*, int index, void* data);
    void* (*get_ex_data)(const Ssl*, int index);
    int (*do_handshake)(Ssl*);
    int (*session_reused)(const Ssl*);
    int (*read)(Ssl*, void* data, int size);
    int (*write)(Ssl*, const void* data, int size);
    int (*get_error)(const Ssl*, int result);
};
struct Keys {
    const SslCipher* (*find_cipher)(Ssl*, const unsigned char* id);
    SslSession* (*create)();
    void (*free)(SslSession*);
    int (*set1_master_key)(SslSession*, const unsigned char* key, std::size_t size);
    int (*set_cipher)(SslSession*, const SslCipher*);
    int (*set_protocol_version)(SslSession*, int version);
};
struct Functions {
    Library library;
    Bios bio;
    Contexts context;
    Connections ssl;
    Keys key;
};

}  // namespace libssl
namespace {

template <class Visit>
void visit_functions(libssl::Functions& lib, const Visit& visit) {
    visit("OpenSSL_version_num", lib.library.version_num);
    visit("OPENSSL_init_ssl", lib.library.init);
    visit("SHA256", lib.library.sha256);
    visit("ERR_clear_error", lib.library.clear_error);
    visit("ERR_peek_error", lib.library.peek_error);
    visit("ERR_reason_error_string", lib.library.reason_error_string);
    visit("BIO_s_mem", lib.bio.s_mem);
    visit("BIO_new", lib.bio.create);
    visit("BIO_free", lib.bio.free);
    visit("BIO_read", lib.bio.read);
    visit("BIO_write", lib.bio.write);
    visit("TLS_method", lib.context.tls_method);
    visit("SSL_CTX_new", lib.context.create);
    visit("SSL_CTX_free", lib.context.free);
    visit("SSL_CTX_ctrl", lib.context.ctrl);
    visit("SSL_CTX_set_options", lib.context.set_options);
    visit("SSL_CTX_clear_options", lib.context.clear_options);
    visit("SSL_CTX_set_ciphersuites", lib.context.set_ciphersuites);
    visit("SSL_CTX_set_num_tickets", lib.context.set_num_tickets);
    visit("SSL_CTX_set_psk_use_session_callback", lib.context.set_psk_use_session_callback);
    visit("SSL_CTX_set_psk_find_session_callback", lib.context.set_psk_find_session_callback);
    visit("SSL_new", lib.ssl.create);
    visit("SSL_free", lib.ssl.free);
    visit("SSL_set_bio", lib.ssl.set_bio);
    visit("SSL_set_connect_state", lib.ssl.set_connect_state);
    visit("SSL_set_accept_state", lib.ssl.set_accept_state);
    visit("SSL_set_verify", lib.ssl.set_verify);
    visit("SSL_set_ex_data", lib.ssl.set_ex_data);
    visit("SSL_get_ex_data", lib.ssl.get_ex_data);
    visit("SSL_do_handshake", lib.ssl.do_handshake);
    visit("SSL_session_reused", lib.ssl.session_reused);
    visit("SSL_read", lib.ssl.read);
    visit("SSL_write", lib.ssl.write);
    visit("SSL_get_error", lib.ssl.get_error);
    visit("SSL_CIPHER_find", lib.key.find_cipher);
    visit("SSL_SESSION_new", lib.key.create);
    visit("SSL_SESSION_free", lib.key.free);
    visit("SSL_SESSION_set1_master_key", lib.key.set1_master_key);
    visit("SSL_SESSION_set_cipher", lib.key.set_cipher);
    visit("SSL_SESSION_set_protocol_version", lib.key.set_protocol_version);
}

// OpenSSL's numbers.
constexpr std::uint64_t init_no_load_config = 0x80;  // the same on all hosts, whatever openssl.cnf
constexpr std::uint64_t init_no_atexit = 0x80000;
constexpr int ctrl_mode = 33;
constexpr int ctrl_set_session_cache_mode = 44;
constexpr int ctrl_set_groups_list = 92;
constexpr int ctrl_set_min_version = 123;
constexpr int ctrl_set_max_version = 124;
constexpr long cache_off = 0;
constexpr long tls_1_3 = 0x0304;
constexpr std::uint64_t op_no_ticket = std::uint64_t{1} << 14;
constexpr std::uint64_t op_allow_no_dhe = std::uint64_t{1} << 10;
constexpr std::uint64_t op_middlebox_compat = std::uint64_t{1} << 20;
constexpr std::uint64_t op_no_renegotiation = std::uint64_t{1} << 30;
constexpr long mode_release_buffers = 0x10;  // of those that wait: strangers may be many
constexpr int verify_peer = 1;
constexpr int error_want_read = 2;
constexpr int error_zero_return = 6;
constexpr unsigned long reason_mask = 0x7fffff;
constexpr unsigned long reason_of_wrong_binder = 253;
constexpr unsigned long first_alert_reason = 1000;  // of an alert that came: 1000 + its number

// The one suite; its hash is the one that the pre-shared key is bound to.
constexpr const char* suite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> suite_id{0x13, 0x01};
constexpr const char* groups = "X25519:P-256";
constexpr std::size_t record_bytes = 16384;
constexpr int own_data = 0;  // the application's index of SSL_set_ex_data

constexpr const char* same_for_all = "DDP_JOB_TOKEN_FILE has to hold the same token on all hosts";

[[noreturn]] void refuse_token(const std::string& why) {
    throw UsageError("there is a job token, which takes TLS: " + why +
                     "; install OpenSSL 3 on this host (Debian: libssl3)");
}

// What a callback calls to know whose session it is about: no table is at hand there.
void* (*data_of_session)(const libssl::Ssl*, int) = nullptr;

libssl::Functions load_libssl() {
    // Never unloaded: it keeps state of its own in the thread.
    void* const handle = ::dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
        const char* const why = ::dlerror();
        refuse_token(why != nullptr ? why : "libssl.so.3 cannot be loaded");
    }
    libssl::Functions lib{};
    visit_functions(lib, [&]<class Function>(const char* symbol, Function*& function) {
        function = reinterpret_cast<Function*>(::dlsym(handle, symbol));  // libcrypto's, too
        if (function == nullptr) refuse_token(std::string("libssl.so.3 has no ") + symbol);
    });
    if (lib.library.version_num() >> 28 != 3) refuse_token("libssl.so.3 is not of OpenSSL 3");
    if (lib.library.init(init_no_load_config | init_no_atexit, nullptr) != 1) {
        refuse_token("libssl.so.3 cannot be initialised");
    }
    data_of_session = lib.ssl.get_ex_data;
    return lib;
}

std::string words_for(const libssl::Functions& lib, unsigned long error) {
    const char* const words = lib.library.reason_error_string(error);
    return words != nullptr ? words : "it is not known why";
}

// Of a hash over the token, so that an end sees whose token is another one.
std::string identity_of(const libssl::Functions& lib, const JobToken& token) {
    constexpr std::string_view label = "ddp job token id";
    std::array<unsigned char, label.size() + JobToken::size> text{};
    std::ranges::copy(label, text.begin());
    std::ranges::copy(token.bytes(), text.begin() + label.size());
    std::array<unsigned char, 32> digest{};
    lib.library.sha256(text.data(), text.size(), digest.data());
    ::explicit_bzero(text.data(), text.size());
    std::string identity = "ddp-job:";
    for (std::size_t i = 0; i < 8; ++i) {
        identity += "0123456789abcdef"[digest.at(i) >> 4];
        identity += "0123456789abcdef"[digest.at(i) & 15];
    }
    return identity;
}

}  // namespace

// The context ------------------------------------------------------------------------------------

using libssl::Bio;
using libssl::Ssl;
using libssl::SslCtx;
using libssl::SslSession;

struct TlsContext::Shared {
    libssl::Functions lib;
    JobToken token;
    std::string identity;
    SslCtx* context = nullptr;

    explicit Shared(const JobToken& the_token);
    ~Shared() { lib.context.free(context); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    SslSession* psk_session(Ssl* ssl) const;
};

struct TlsSession::State {
    enum class Offer { none, own_token, other_token };  // what a client has come with

    std::shared_ptr<const TlsContext::Shared> shared;
    TlsRole role;
    std::string other;
    Ssl* ssl = nullptr;
    Bio* in = nullptr;   // the session's
    Bio* out = nullptr;  // likewise
    Offer offer = Offer::none;
    bool is_established = false;
    std::string beginning = {};  // of what came: tells TLS from plain frames
    std::string waiting = {};
    std::string plain = {};
    std::string wire = {};
    std::string trouble = {};

    State(std::shared_ptr<const TlsContext::Shared> of, TlsRole the_role, std::string the_other);
    ~State() { shared->lib.ssl.free(ssl); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    void take_in(std::string_view bytes);
    bool answers_without_tls(std::string_view bytes);
    void advance();
    void shake_hands();
    void read();
    void write(std::string_view bytes);
    void collect();
    void fail(int result);
    std::string why_no_handshake(unsigned long error) const;

    static State& of(const Ssl* ssl) {
        return *static_cast<State*>(data_of_session(ssl, own_data));
    }
    static int use_session(Ssl*, const void*, const unsigned char**, std::size_t*, SslSession**);
    static int find_session(Ssl*, const unsigned char*, std::size_t, SslSession**);
};

TlsContext::Shared::Shared(const JobToken& the_token)
    : lib(load_libssl()), token(the_token), identity(identity_of(lib, token)) {
    context = lib.context.create(lib.context.tls_method());
    if (context == nullptr) refuse_token("libssl.so.3 makes no context");
    const auto control = [&](int command, long number, const char* text) {
        return lib.context.ctrl(context, command, number, const_cast<char*>(text));
    };
    const bool is_set = control(ctrl_set_min_version, tls_1_3, nullptr) == 1 &&
                        control(ctrl_set_max_version, tls_1_3, nullptr) == 1 &&
                        control(ctrl_set_groups_list, 0, groups) == 1 &&
                        lib.context.set_ciphersuites(context, suite) == 1 &&
                        lib.context.set_num_tickets(context, 0) == 1;
    if (!is_set) {
        lib.context.free(context);
        refuse_token(std::string("libssl.so.3 has no TLS 1.3 with ") + suite + " and " + groups);
    }
    control(ctrl_set_session_cache_mode, cache_off, nullptr);
    control(ctrl_mode, mode_release_buffers, nullptr);
    lib.context.set_options(context, op_no_ticket | op_no_renegotiation);
    lib.context.clear_options(context, op_allow_no_dhe | op_middlebox_compat);
    lib.context.set_psk_use_session_callback(context, TlsSession::State::use_session);
    lib.context.set_psk_find_session_callback(context, TlsSession::State::find_session);
}

// The pre-shared key as OpenSSL wants it. Null: no memory.
SslSession* TlsContext::Shared::psk_session(Ssl* ssl) const {
    SslSession* const session = lib.key.create();
    if (session == nullptr) return nullptr;
    const libssl::SslCipher* const cipher = lib.key.find_cipher(ssl, suite_id.data());
    const bool is_set =
        cipher != nullptr &&
        lib.key.set1_master_key(session, token.bytes().data(), JobToken::size) == 1 &&
        lib.key.set_cipher(session, cipher) == 1 &&
        lib.key.set_protocol_version(session, tls_1_3) == 1;
    if (is_set) return session;
    lib.key.free(session);
    return nullptr;
}

TlsContext::TlsContext(const JobToken& token) : shared_(std::make_shared<const Shared>(token)) {}

const std::string& TlsContext::identity() const { return shared_->identity; }

TlsSession TlsContext::session(TlsRole role, std::string other) const {
    return TlsSession(std::make_unique<TlsSession::State>(shared_, role, std::move(other)));
}

// A session --------------------------------------------------------------------------------------

TlsSession::State::State(std::shared_ptr<const TlsContext::Shared> of, TlsRole the_role,
                         std::string the_other)
    : shared(std::move(of)), role(the_role), other(std::move(the_other)) {
    const libssl::Functions& lib = shared->lib;
    ssl = lib.ssl.create(shared->context);
    in = lib.bio.create(lib.bio.s_mem());
    out = lib.bio.create(lib.bio.s_mem());
    if (ssl == nullptr || in == nullptr || out == nullptr) {
        lib.bio.free(in);
        lib.bio.free(out);
        lib.ssl.free(ssl);
        throw SystemError("TLS session", ENOMEM);
    }
    lib.ssl.set_bio(ssl, in, out);
    lib.ssl.set_ex_data(ssl, own_data, this);
    if (role == TlsRole::server) {
        lib.ssl.set_accept_state(ssl);
    } else {
        lib.ssl.set_connect_state(ssl);
        // No authority is known, so that no certificate stands in for the token.
        lib.ssl.set_verify(ssl, verify_peer, nullptr);
        advance();
    }
}

// Asked for the key with which a client opens.
int TlsSession::State::use_session(Ssl* ssl, const void* /*digest*/, const unsigned char** id,
                                   std::size_t* id_size, SslSession** session) {
    const State& state = of(ssl);
    *session = state.shared->psk_session(ssl);
    if (*session == nullptr) return 0;
    *id = reinterpret_cast<const unsigned char*>(state.shared->identity.data());
    *id_size = state.shared->identity.size();
    return 1;
}

// Asked for the key that a client names. Without one OpenSSL looks for a certificate, has none, and
// tells the client that the handshake has failed.
int TlsSession::State::find_session(Ssl* ssl, const unsigned char* id, std::size_t id_size,
                                    SslSession** session) {
    State& state = of(ssl);
    const std::string_view named(reinterpret_cast<const char*>(id), id_size);
    *session = nullptr;
    state.offer = named == state.shared->identity ? Offer::own_token : Offer::other_token;
    if (state.offer == Offer::other_token) return 1;
    *session = state.shared->psk_session(ssl);
    return *session != nullptr ? 1 : 0;
}

void TlsSession::State::take_in(std::string_view bytes) {
    if (!trouble.empty() || answers_without_tls(bytes)) return;
    while (!bytes.empty() && trouble.empty()) {
        // So that what is not whole yet is all that OpenSSL ever holds.
        const std::string_view piece = bytes.substr(0, record_bytes);
        bytes.remove_prefix(piece.size());
        const auto size = static_cast<int>(piece.size());
        if (shared->lib.bio.write(in, piece.data(), size) != size) {
            trouble = "TLS with " + other + ": no memory";
            return;
        }
        advance();
    }
}

// Whether a client is answered in plain frames. A record begins with its type and version, a frame
// with its length; the third byte of a short frame's is 0.
bool TlsSession::State::answers_without_tls(std::string_view bytes) {
    constexpr std::size_t enough = 3;
    if (role == TlsRole::server || bytes.empty() || beginning.size() == enough) return false;
    beginning += bytes.substr(0, enough - beginning.size());
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(beginning.at(at)); };
    const bool is_record = (byte(0) >= 20 && byte(0) <= 23) &&
                           (beginning.size() < 2 || byte(1) == 3) &&
                           (beginning.size() < 3 || (byte(2) >= 1 && byte(2) <= 4));
    if (is_record) return false;
    trouble = other + " has no job token, and this host has one: " + same_for_all;
    return true;
}

void TlsSession::State::advance() {
    if (!is_established) shake_hands();
    if (is_established) read();
    collect();
}

void TlsSession::State::shake_hands() {
    shared->lib.library.clear_error();
    const int result = shared->lib.ssl.do_handshake(ssl);
    if (result != 1) return fail(result);
    if (shared->lib.ssl.session_reused(ssl) != 1) {
        trouble = other + " has not proved that it knows the job token";
        return;
    }
    is_established = true;
    write(std::exchange(waiting, {}));
}

void TlsSession::State::read() {
    std::array<char, record_bytes> piece;
    while (trouble.empty()) {
        shared->lib.library.clear_error();
        const int count = shared->lib.ssl.read(ssl, piece.data(), static_cast<int>(piece.size()));
        if (count <= 0) return fail(count);
        plain.append(piece.data(), static_cast<std::size_t>(count));
    }
}

void TlsSession::State::write(std::string_view bytes) {
    if (!trouble.empty()) return;
    if (!is_established) {
        waiting += bytes;
        return;
    }
    while (!bytes.empty() && trouble.empty()) {
        const std::string_view piece = bytes.substr(0, record_bytes);
        bytes.remove_prefix(piece.size());
        shared->lib.library.clear_error();
        const auto size = static_cast<int>(piece.size());
        const int result = shared->lib.ssl.write(ssl, piece.data(), size);
        if (result != size) fail(result);
        collect();
    }
}

void TlsSession::State::collect() {
    std::array<char, record_bytes> piece;
    for (;;) {
        const int count = shared->lib.bio.read(out, piece.data(), static_cast<int>(piece.size()));
        if (count <= 0) return;
        wire.append(piece.data(), static_cast<std::size_t>(count));
    }
}

// Unless nothing is wrong but that more has to come first.
void TlsSession::State::fail(int result) {
    const int kind = shared->lib.ssl.get_error(ssl, result);
    if (kind == error_want_read) return;
    const unsigned long error = shared->lib.library.peek_error();
    if (kind == error_zero_return) {
        trouble = "TLS was ended by " + other;
    } else if (is_established) {
        trouble = "what came was altered on its way (TLS: " + words_for(shared->lib, error) + ")";
    } else {
        trouble = why_no_handshake(error);
    }
    waiting.clear();
    shared->lib.library.clear_error();
}

std::string TlsSession::State::why_no_handshake(unsigned long error) const {
    const unsigned long reason = error & reason_mask;
    const bool differs = role == TlsRole::client
                             ? reason >= first_alert_reason
                             : offer == Offer::other_token || reason == reason_of_wrong_binder;
    if (differs) return "the job tokens of " + other + " and this host differ: " + same_for_all;
    return "no TLS with " + other + ": " + words_for(shared->lib, error);
}

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::TlsSession(TlsSession&&) noexcept = default;
TlsSession& TlsSession::operator=(TlsSession&&) noexcept = default;
TlsSession::~TlsSession() = default;

void TlsSession::take_in(std::string_view wire) { state_->take_in(wire); }
std::string TlsSession::take_plain() { return std::exchange(state_->plain, {}); }
void TlsSession::write(std::string_view plain) { state_->write(plain); }
std::size_t TlsSession::waiting_bytes() const { return state_->waiting.size(); }
std::string TlsSession::take_wire() { return std::exchange(state_->wire, {}); }
bool TlsSession::is_established() const { return state_->is_established; }
const std::string& TlsSession::trouble() const { return state_->trouble; }

}  // namespace ddp::launcher
