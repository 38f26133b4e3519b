// A library with a public function that calls another one of its own, as NCCL's do, and says which
// version it is: VERSION, of the two that are built.
#define PUBLIC extern "C" __attribute__((visibility("default")))

PUBLIC int ddp_test_version() { return VERSION; }
PUBLIC int ncclGetVersion(int* version) {
    *version = ddp_test_version();
    return 0;
}
