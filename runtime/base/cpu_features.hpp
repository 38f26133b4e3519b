// Who made this x86-64 processor, and which instructions it has, as the dynamic linker has found
// out already. GCC's own __builtin_cpu_supports and __builtin_cpu_is ask the processor again before
// main, about ten times, and in a virtual machine each question takes some 10 us: together a fifth
// of the time to join a group. Of another processor all is false.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>
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

namespace ddp::base {

inline bool is_made_by_amd() { return false; }
inline bool has_fast_short_rep_movsb() { return false; }

}  // namespace ddp::base

#endif
