/* What the host implementation of the device API shows to the stand-in NCCL, in C: a struct at the
 * start of each stream, so that the library can put its work there, and a table of what else it
 * asks a driver for. The library links nothing of the test's. */
#ifndef DDP_TESTS_SUPPORT_HOST_STREAM_H
#define DDP_TESTS_SUPPORT_HOST_STREAM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_HOST_STREAM_MAGIC 0x6464707374726561ULL

struct CUstream_st {
    unsigned long long magic; /* DDP_HOST_STREAM_MAGIC, or it is not one */
    int device;
    /* Runs work(argument) on the stream's thread, after what was put there before. */
    void (*enqueue)(struct CUstream_st* stream, void (*work)(void* argument), void* argument);
    /* Whether what is put on the stream goes into a graph; null: it never does. */
    int (*is_captured)(struct CUstream_st* stream);
    /* At each launch of that graph prepare(recorded) is called, and work runs with what it returns;
     * release(recorded) when the graph is gone. */
    void (*capture)(struct CUstream_st* stream, void* recorded, void* (*prepare)(void* recorded),
                    void (*work)(void* argument), void (*release)(void* recorded));
};

struct ddp_host_driver {
    int (*current_device)(void); /* of the calling thread */
    /* The stream itself, or for null the current device's default one; null: there is none. */
    struct CUstream_st* (*stream)(struct CUstream_st* handle);
    /* Whether all the bytes are memory of the device. */
    int (*owns)(int device, const void* memory, size_t bytes);
    void* (*allocate)(size_t bytes); /* of the current device; null: not enough */
    void (*free)(void* memory);
    /* Two devices with one id are the same card, also in different processes. */
    unsigned long long (*bus_id)(int device);
};

/* Of the process; null while there is no HostDeviceApi. The library finds it by dlsym(). */
const struct ddp_host_driver* ddp_find_host_driver(void);

#ifdef __cplusplus
}
#endif

#endif
