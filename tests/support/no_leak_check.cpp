// For programs whose threads may be on their way out when the process ends, as those of an aborted
// NCCL are: AddressSanitizer's look for leaks at exit crashes when it meets one. What they share
// with programs that have ranks as threads is looked at there.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }  // NOLINT: its name
