/* What the host implementation of the device API calls a stream, as the stand-in NCCL sees it: a C
 * struct at the start of the object, so that the library can put its work there without linking
 * anything of the test's. */
#ifndef DDP_TESTS_SUPPORT_HOST_STREAM_H
#define DDP_TESTS_SUPPORT_HOST_STREAM_H

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_HOST_STREAM_MAGIC 0x6464707374726561ULL

struct CUstream_st {
    unsigned long long magic; /* DDP_HOST_STREAM_MAGIC, or it is not one */
    int device;
    /* Runs work(argument) on the stream's thread, after what was put there before. */
    void (*enqueue)(struct CUstream_st* stream, void (*work)(void* argument), void* argument);
};

#ifdef __cplusplus
}
#endif

#endif
