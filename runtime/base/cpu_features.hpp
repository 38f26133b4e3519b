// Who made this x86-64 processor, and which instructions it has, as the dynamic linker has found
// out already. GCC's own __builtin_cpu_supports and __builtin_cpu_is ask the processor again before
// main, about ten times, and in a virtual machine each question takes some 10 us: together a fifth
// of the time to join a group. Of another processor all is false. processor_name() does ask: only
// where there is a file that names processors.
#pragma once

#include <string>

#if defined(__x86_64__)

#include <cpuid.h>

#include <initializer_list>
// glibc 2.33 and newer; in 2.36 the header says _Bool, which clang takes for no C++.
#if __has_include(<sys/platform/x86.h>) && !defined(__clang__)
#include <sys/platform/x86.h>
#define DDP_GLIBC_KNOWS_PROCESSOR
#endif

namespace ddp::base {

inline bool is_made_by_amd() {
    unsigned largest = 0, first = 0, second = 0, third = 0;
    __cpuid(0, largest, first, third, second);  // "AuthenticAMD", by four letters
    return first == signature_AMD_ebx && second == signature_AMD_edx && third == signature_AMD_ecx;
}

// The maker's name, family and model, such as "GenuineIntel/6/207". No blanks.
inline std::string processor_name() {
    unsigned largest = 0, b = 0, c = 0, d = 0;
    __cpuid(0, largest, b, c, d);
    std::string name;
    for (const unsigned letters : {b, d, c}) {
        for (unsigned shift = 0; shift < 32; shift += 8) {
            const char letter = static_cast<char>(letters >> shift & 0xffU);
            if (letter > ' ' && letter <= '~') name += letter;
        }
    }
    unsigned version = 0;
    __cpuid(1, version, b, c, d);
    // The base family is 15 where the extended one counts, and then it is added.
    const unsigned base_family = version >> 8U & 0xfU;
    const unsigned family = base_family == 15 ? 15 + (version >> 20U & 0xffU) : base_family;
    const bool has_extended_model = base_family == 6 || base_family == 15;
    const unsigned model =
        (version >> 4U & 0xfU) + (has_extended_model ? (version >> 16U & 0xfU) << 4U : 0);
    return name + "/" + std::to_string(family) + "/" + std::to_string(model);
}

#ifdef DDP_GLIBC_KNOWS_PROCESSOR
inline bool has_avx2_and_f16c() { return CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(F16C); }
inline bool has_sse4_2() { return CPU_FEATURE_ACTIVE(SSE4_2); }
inline bool has_fast_short_rep_movsb() { return CPU_FEATURE_PRESENT(FSRM); }
#else
inline bool has_avx2_and_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;  // not every compiler's builtin knows f16c
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
}
inline bool has_sse4_2() { return __builtin_cpu_supports("sse4.2") != 0; }
inline bool has_fast_short_rep_movsb() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned fsrm = 1U << 4U;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & fsrm) != 0;
}
#endif

}  // namespace ddp::base

#else

#include <sys/utsname.h>

namespace ddp::base {

// The kernel's name of the instruction set, such as "aarch64".
inline std::string processor_name() {
    struct utsname names {};
    return ::uname(&names) == 0 ? names.machine : "unknown";
}
inline bool is_made_by_amd() { return false; }
inline bool has_fast_short_rep_movsb() { return false; }

}  // namespace ddp::base

#endif
