// The C interface of ddp: joining a job, its collectives, averaged gradients, samples, checkpoints.
// For C99 and for languages that call C; C++ has ddp/ddp.hpp, whose classes these are. What their
// headers say of blocking, threads, order and equal arguments on all ranks is true here; the name
// of the class is said below.
//
//     ddp_group* group;
//     if (ddp_init_process_group(NULL, &group) != DDP_OK) { puts(ddp_last_error()); exit(1); }
//     ddp_all_reduce(group, ddp_cpu_tensor(sums, 10, DDP_FLOAT32), DDP_SUM, NULL, NULL);
//
// Errors: every function that can fail returns DDP_OK or what went wrong, and then has changed none
// of its results; ddp_last_error() is the message. No C++ exception comes out of one. Handles are
// the caller's until ddp_..._destroy, which takes NULL, too; what a handle was made of outlives it.
// Text is copied. `options` are "name=value,name=value", or NULL; an unknown name is an error.
// The ABI: functions, fields and numbers stay as they are; what is new has a name of its own.
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define DDP_C_API __attribute__((visibility("default")))

typedef int ddp_status;  // one of these
enum {
    DDP_OK = 0,
    DDP_ERROR = 1,             // any other, such as ddp_fail's
    DDP_USAGE_ERROR = 2,       // it can never work: a wrong argument, ranks that disagree
    DDP_SYSTEM_ERROR = 3,      // a call to the operating system failed
    DDP_TIMEOUT_ERROR = 4,     // a deadline passed
    DDP_PEER_ERROR = 5,        // another rank died, left or failed
    DDP_BACKEND_ERROR = 6,     // a library underneath failed
    DDP_CHECKPOINT_ERROR = 7,  // a file could not be written, read or believed
    DDP_NO_MEMORY = 8
};

// What this thread's last call that failed has to say; valid until its next one. "" before.
DDP_C_API const char* ddp_last_error(void);
// The rank of the job that it is due to; -1: not known.
DDP_C_API int ddp_last_error_rank(void);
// "0.1.0": of the library that the program runs with.
DDP_C_API const char* ddp_version(void);

// The body of a worker's main (ddp/run_worker.hpp): `return ddp_run_worker(train, &my_data);`. Calls
// `body` and returns main's exit code: 0 where that returns DDP_OK; else what a call of ddp had to
// say, or ddp_fail, is written on stderr and into the launcher's error file, and it is 82 where
// another rank is to blame, or 1. A body returns what the call has returned, of whatever thread, or
// ddp_fail's. With `--break-on-failure` the process stops once the body has returned.
DDP_C_API int ddp_run_worker(ddp_status (*body)(void* argument), void* argument);
// Makes `message` the last error: `return ddp_fail("no data");`. Returns DDP_ERROR.
DDP_C_API ddp_status ddp_fail(const char* message);
// For a main, or a language, with a frame of its own: writes the launcher's error file, without a
// word on stderr, and returns the exit code to leave with. `rank`: as ddp_last_error_rank's.
DDP_C_API int ddp_report_failure(const char* message, int rank);

// ---- Tensors (TensorView): contiguous memory, borrowed until the operation on it is done ----

typedef int ddp_dtype;  // one of these
enum {
    DDP_FLOAT32 = 0,
    DDP_FLOAT64 = 1,
    DDP_INT32 = 2,
    DDP_INT64 = 3,
    DDP_UINT8 = 4,
    DDP_FLOAT16 = 5,
    DDP_BFLOAT16 = 6,
    DDP_INT8 = 7,
    DDP_INT16 = 8,
    DDP_BOOL = 9  // a byte, 0 or 1
};

// Made by ddp_cpu_tensor, ddp_gpu_tensor or field by field.
typedef struct ddp_tensor {
    void* data;       // the first element
    size_t count;     // elements
    ddp_dtype dtype;  // of each
    int device;       // 0: the CPU's memory; n + 1: that of the n-th GPU that this process sees
} ddp_tensor;

static inline ddp_tensor ddp_cpu_tensor(void* data, size_t count, ddp_dtype dtype) {
    const ddp_tensor tensor = {data, count, dtype, 0};
    return tensor;
}
static inline ddp_tensor ddp_gpu_tensor(void* data, size_t count, ddp_dtype dtype, int gpu) {
    const ddp_tensor tensor = {data, count, dtype, gpu + 1};
    return tensor;
}

// Of a checkpoint.
typedef struct ddp_named_tensor {
    const char* name;      // unique
    ddp_tensor tensor;     // its elements
    const int64_t* shape;  // `dims` extents, the outermost first; NULL: one, the count
    size_t dims;           // at most 8
} ddp_named_tensor;

// ---- Groups (ProcessGroup) ----

typedef struct ddp_group ddp_group;      // the ranks of a job, or some of them
typedef struct ddp_work ddp_work;        // a collective in flight
typedef struct CUstream_st* ddp_stream;  // a cudaStream_t; NULL: the default one. For GPUs' memory

// Joins the job that the environment describes; alone a world of one. Collective; blocks. Options:
// backend=automatic|shm|gloo|nccl|hierarchical, timeout=SECONDS (of it, and of each collective).
DDP_C_API ddp_status ddp_init_process_group(const char* options, ddp_group** group);
// Waits for what is in flight.
DDP_C_API void ddp_group_destroy(ddp_group* group);
// -1, or "", where `group` is NULL.
DDP_C_API int ddp_group_rank(const ddp_group* group);
DDP_C_API int ddp_group_size(const ddp_group* group);
DDP_C_API int ddp_group_local_rank(const ddp_group* group);
DDP_C_API int ddp_group_local_size(const ddp_group* group);
DDP_C_API int ddp_group_device(const ddp_group* group);           // as ddp_tensor's
DDP_C_API const char* ddp_group_backend(const ddp_group* group);  // "shm"
// How far this rank is, for ddp-launch: two stores. A rate of 0: unknown.
DDP_C_API void ddp_publish_progress(ddp_group* group, int64_t step, double steps_per_second);

typedef int ddp_reduce_op;  // one of these
enum {
    DDP_SUM = 0,
    DDP_AVG = 1,
    DDP_MIN = 2,
    DDP_MAX = 3,
    DDP_PRODUCT = 4,
    DDP_BIT_AND = 5,
    DDP_BIT_OR = 6,
    DDP_BIT_XOR = 7
};

// Each collective returns when its memory is this rank's again, where `work` is NULL; on a GPU when
// it is in order on `stream`. Else it returns at once, and ddp_wait takes *work and does the rest.

// In place.
DDP_C_API ddp_status ddp_all_reduce(ddp_group* group, ddp_tensor tensor, ddp_reduce_op op,
                                    ddp_stream stream, ddp_work** work);
// `output`: on root only.
DDP_C_API ddp_status ddp_reduce(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                                ddp_reduce_op op, ddp_stream stream, ddp_work** work);
DDP_C_API ddp_status ddp_broadcast(ddp_group* group, ddp_tensor tensor, int root, ddp_stream stream,
                                   ddp_work** work);
// `output`: as many parts like `input` as there are ranks.
DDP_C_API ddp_status ddp_all_gather(ddp_group* group, ddp_tensor input, ddp_tensor output,
                                    ddp_stream stream, ddp_work** work);
DDP_C_API ddp_status ddp_gather(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                                ddp_stream stream, ddp_work** work);
// `input`: as many parts like `output`; of scatter on root only.
DDP_C_API ddp_status ddp_scatter(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                                 ddp_stream stream, ddp_work** work);
DDP_C_API ddp_status ddp_reduce_scatter(ddp_group* group, ddp_tensor input, ddp_tensor output,
                                        ddp_reduce_op op, ddp_stream stream, ddp_work** work);
DDP_C_API ddp_status ddp_all_to_all(ddp_group* group, ddp_tensor input, ddp_tensor output,
                                    ddp_stream stream, ddp_work** work);
DDP_C_API ddp_status ddp_send(ddp_group* group, ddp_tensor tensor, int to, ddp_stream stream,
                              ddp_work** work);
DDP_C_API ddp_status ddp_recv(ddp_group* group, ddp_tensor tensor, int from, ddp_stream stream,
                              ddp_work** work);
DDP_C_API ddp_status ddp_barrier(ddp_group* group);

// Waits, on a GPU lets `stream` wait, and ends the handle, whatever it returns. NULL: nothing.
DDP_C_API ddp_status ddp_wait(ddp_work* work, ddp_stream stream);
// 1: it has ended, well or not. Never blocks.
DDP_C_API int ddp_work_is_completed(const ddp_work* work);

// Ranks of equal color form a group, ordered by key, then by rank. Collective; blocks.
DDP_C_API ddp_status ddp_group_split(ddp_group* group, int color, int key, ddp_group** part);

// Lets collectives of the group use the CPU's memory at `tensor` without copying it, until the
// handle's end: ProcessGroup::adopt. Collective; blocks.
typedef struct ddp_adopted ddp_adopted;
DDP_C_API ddp_status ddp_adopt(ddp_group* group, ddp_tensor tensor, ddp_adopted** adopted);
DDP_C_API void ddp_adopted_destroy(ddp_adopted* adopted);

// ---- Averaged gradients (Reducer) ----

typedef struct ddp_reducer ddp_reducer;  // averages gradients
// A trainable tensor and its gradient.
typedef struct ddp_parameter {
    const char* name;  // unique
    ddp_tensor value;  // where it is
    void* grad;        // as many elements, of the same dtype and device
} ddp_parameter;

// Collective. `parameters` are in the order of the forward; rank 0's values go to all. Options, as
// ReducerOptions': bucket_cap_mb, first_bucket_mb, find_unused_parameters, static_graph,
// logical_ranks, checksum_steps.
DDP_C_API ddp_status ddp_reducer_create(ddp_group* group, const ddp_parameter* parameters,
                                        size_t count, const char* options, ddp_reducer** reducer);
// In the middle of a backward that sends, the group of a model on CPUs ends with it: the other ranks
// get a DDP_PEER_ERROR. Until then another reducer of the same gradients is refused.
DDP_C_API void ddp_reducer_destroy(ddp_reducer* reducer);
// A backward begins; needed with find_unused_parameters, whose `unused` are indices of parameters,
// and with logical_ranks.
DDP_C_API ddp_status ddp_reducer_start_backward(ddp_reducer* reducer, const size_t* unused,
                                                size_t count, ddp_stream stream);
// The gradient of this parameter is complete. Never blocks.
DDP_C_API ddp_status ddp_reducer_mark_ready(ddp_reducer* reducer, size_t parameter,
                                            ddp_stream stream);
// Ends the backward. *averaged (NULL: not wanted) is 1 where each gradient is now the average over
// ranks, 0 where nothing was sent.
DDP_C_API ddp_status ddp_reducer_wait(ddp_reducer* reducer, ddp_stream stream, int* averaged);
// 0: gradients stay this rank's, and add up, until it is 1 again; on all ranks alike.
DDP_C_API ddp_status ddp_reducer_set_sync(ddp_reducer* reducer, int sync);

// ---- Samples (DistributedSampler) ----

typedef struct ddp_sampler ddp_sampler;  // this rank's samples of an epoch
// The samples of rank `rank` of `ranks`. Options: shuffle, seed, drop_last, logical_ranks,
// allow_empty, as DistributedSamplerOptions'.
DDP_C_API ddp_status ddp_sampler_create(size_t dataset_size, int rank, int ranks,
                                        const char* options, ddp_sampler** sampler);
DDP_C_API void ddp_sampler_destroy(ddp_sampler* sampler);
// `finished`: samples of the epoch that all ranks together have had already.
DDP_C_API ddp_status ddp_sampler_set_epoch(ddp_sampler* sampler, int64_t epoch, size_t finished);
// *indices: `*count` of them, valid until the sampler's next call.
DDP_C_API ddp_status ddp_sampler_indices(ddp_sampler* sampler, const size_t** indices,
                                         size_t* count);

// ---- Checkpoints (CheckpointManager) and files of tensors (StateDict) ----

typedef struct ddp_checkpoints ddp_checkpoints;  // a folder of checkpoints
// How far a training is.
typedef struct ddp_progress {
    int64_t epoch;     // finished epochs
    uint64_t samples;  // of the next one, finished by all ranks together
    int64_t step;      // the program's own count
} ddp_progress;

// A folder of the last few. Options: keep_last, timeout=SECONDS.
DDP_C_API ddp_status ddp_checkpoints_create(const char* folder, ddp_group* group,
                                            const char* options, ddp_checkpoints** checkpoints);
DDP_C_API void ddp_checkpoints_destroy(ddp_checkpoints* checkpoints);
// Collective: rank 0 writes. When it returns, the checkpoint survives a loss of power.
DDP_C_API ddp_status ddp_checkpoints_save(ddp_checkpoints* checkpoints, ddp_progress progress,
                                          const ddp_named_tensor* tensors, size_t count);
// Collective: copies the tensors, and a thread of rank 0 writes them; ddp_checkpoints_wait returns
// when they are as safe.
DDP_C_API ddp_status ddp_checkpoints_save_async(ddp_checkpoints* checkpoints, ddp_progress progress,
                                                const ddp_named_tensor* tensors, size_t count);
DDP_C_API ddp_status ddp_checkpoints_wait(ddp_checkpoints* checkpoints);
// Collective: the newest valid one goes into the tensors. All zero: there is none.
DDP_C_API ddp_status ddp_checkpoints_resume(ddp_checkpoints* checkpoints,
                                            const ddp_named_tensor* tensors, size_t count,
                                            ddp_progress* progress);

// This process's alone: a safetensors file, or what torch.load reads where its name ends in .pth or
// .pt. Names, shapes and dtypes of all `tensors` and of the file are the same, or nothing is read.
DDP_C_API ddp_status ddp_write_tensors(const char* file, const ddp_named_tensor* tensors,
                                       size_t count);
DDP_C_API ddp_status ddp_read_tensors(const char* file, const ddp_named_tensor* tensors,
                                      size_t count);

// The line of the program that the next call of this thread is made in, for errors and for
// ddp-launch. `file` is not copied: a literal's memory. The macros below say it, in C, as those names
// are called; DDP_NO_CALL_SITES leaves them out.
DDP_C_API void ddp_set_call_site(const char* file, uint32_t line);

#if !defined(DDP_NO_CALL_SITES) && !defined(__cplusplus)
#define DDP_HERE(call) (ddp_set_call_site(__FILE__, __LINE__), call)
#define ddp_publish_progress(...) DDP_HERE(ddp_publish_progress(__VA_ARGS__))
#define ddp_all_reduce(...) DDP_HERE(ddp_all_reduce(__VA_ARGS__))
#define ddp_reduce(...) DDP_HERE(ddp_reduce(__VA_ARGS__))
#define ddp_broadcast(...) DDP_HERE(ddp_broadcast(__VA_ARGS__))
#define ddp_all_gather(...) DDP_HERE(ddp_all_gather(__VA_ARGS__))
#define ddp_gather(...) DDP_HERE(ddp_gather(__VA_ARGS__))
#define ddp_scatter(...) DDP_HERE(ddp_scatter(__VA_ARGS__))
#define ddp_reduce_scatter(...) DDP_HERE(ddp_reduce_scatter(__VA_ARGS__))
#define ddp_all_to_all(...) DDP_HERE(ddp_all_to_all(__VA_ARGS__))
#define ddp_send(...) DDP_HERE(ddp_send(__VA_ARGS__))
#define ddp_recv(...) DDP_HERE(ddp_recv(__VA_ARGS__))
#define ddp_barrier(...) DDP_HERE(ddp_barrier(__VA_ARGS__))
#define ddp_group_split(...) DDP_HERE(ddp_group_split(__VA_ARGS__))
#define ddp_adopt(...) DDP_HERE(ddp_adopt(__VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif  // DDP_DDP_H
