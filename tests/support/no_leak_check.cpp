// For programs whose threads may be on their way out when the process ends, as those of an aborted
// NCCL are, or live as long as it, as streams of host GPUs do: AddressSanitizer's look for leaks at
// exit crashes when it meets one, and ThreadSanitizer reports it. What they share with programs
// that have ranks as threads is looked at there.
extern "C" {
const char* __asan_default_options() { return "detect_leaks=0"; }         // NOLINT: its name
const char* __tsan_default_options() { return "report_thread_leaks=0"; }  // NOLINT: its name
}
