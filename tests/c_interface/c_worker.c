// A worker in C99 that calls each function of ddp.h and looks at what it gives. Its first word says
// which; it exits with 0 where all is as it should be.
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int argument_count;
static char** arguments;

#define CHECK(condition) \
    if (!(condition)) return ddp_fail("line " STRING(__LINE__) ": " #condition)
#define STRING(line) TEXT(line)
#define TEXT(line) #line
#define TRY(call)                          \
    do {                                   \
        const ddp_status tried = (call);   \
        if (tried != DDP_OK) return tried; \
    } while (0)

enum { most_ranks = 8 };

static ddp_tensor floats(float* data, size_t count) {
    return ddp_cpu_tensor(data, count, DDP_FLOAT32);
}

static ddp_status call_reductions(ddp_group* group, int rank, int size) {
    float sum = (float)rank + 1, all = 0, part = 0, numbers[most_ranks];
    TRY(ddp_all_reduce(group, floats(&sum, 1), DDP_SUM, NULL, NULL));
    CHECK(sum == (float)(size * (size + 1)) / 2);
    float most = (float)rank;
    ddp_work* work = NULL;
    TRY(ddp_all_reduce(group, floats(&most, 1), DDP_MAX, NULL, &work));
    CHECK(work != NULL);
    TRY(ddp_wait(work, NULL));
    CHECK(most == (float)(size - 1));
    int64_t product = rank + 1, expected = 1;
    for (int i = 1; i <= size; ++i) expected *= i;
    TRY(ddp_all_reduce(group, ddp_cpu_tensor(&product, 1, DDP_INT64), DDP_PRODUCT, NULL, NULL));
    CHECK(product == expected);
    float one = 1;
    TRY(ddp_reduce(group, floats(&one, 1), floats(&all, 1), size - 1, DDP_SUM, NULL, NULL));
    CHECK(all == (float)(rank == size - 1 ? size : 0));
    for (int i = 0; i < size; ++i) numbers[i] = (float)i;
    TRY(ddp_reduce_scatter(group, floats(numbers, (size_t)size), floats(&part, 1), DDP_AVG, NULL,
                           NULL));
    CHECK(part == (float)rank);
    return DDP_OK;
}

static ddp_status call_copies(ddp_group* group, int rank, int size) {
    const size_t ranks = (size_t)size;
    float own = (float)rank, all[most_ranks] = {0}, others[most_ranks] = {0};
    TRY(ddp_all_gather(group, floats(&own, 1), floats(all, ranks), NULL, NULL));
    for (int i = 0; i < size; ++i) CHECK(all[i] == (float)i);
    TRY(ddp_gather(group, floats(&own, 1), floats(others, ranks), 0, NULL, NULL));
    CHECK(others[size - 1] == (float)(rank == 0 ? size - 1 : 0));
    TRY(ddp_scatter(group, floats(all, ranks), floats(&own, 1), size - 1, NULL, NULL));
    CHECK(own == (float)rank);
    for (int i = 0; i < size; ++i) all[i] = (float)(10 * rank + i);
    TRY(ddp_all_to_all(group, floats(all, ranks), floats(others, ranks), NULL, NULL));
    for (int i = 0; i < size; ++i) CHECK(others[i] == (float)(10 * i + rank));
    own = (float)rank + 5;
    TRY(ddp_broadcast(group, floats(&own, 1), size - 1, NULL, NULL));
    CHECK(own == (float)size + 4);
    return DDP_OK;
}

// Each rank to the next one.
static ddp_status call_transfers(ddp_group* group, int rank, int size) {
    float own = (float)rank, got = -1;
    ddp_work* work = NULL;
    TRY(ddp_recv(group, floats(&got, 1), (rank + size - 1) % size, NULL, &work));
    TRY(ddp_send(group, floats(&own, 1), (rank + 1) % size, NULL, NULL));
    TRY(ddp_wait(work, NULL));
    CHECK(got == (float)((rank + size - 1) % size));
    TRY(ddp_barrier(group));
    CHECK(ddp_work_is_completed(NULL) == 1);
    TRY(ddp_wait(NULL, NULL));
    return DDP_OK;
}

static ddp_status call_parts(ddp_group* group, int rank, int size) {
    ddp_group* half = NULL;
    TRY(ddp_group_split(group, rank % 2, -rank, &half));
    CHECK(ddp_group_size(half) == (size + 1 - rank % 2) / 2);
    float count = 1;
    TRY(ddp_all_reduce(half, floats(&count, 1), DDP_SUM, NULL, NULL));
    CHECK(count == (float)ddp_group_size(half));
    ddp_group_destroy(half);
    const size_t page = 1 << 16;
    float* const memory = calloc(2 * page, sizeof(float));
    CHECK(memory != NULL);
    ddp_adopted* adopted = NULL;
    TRY(ddp_adopt(group, floats(memory, 2 * page), &adopted));
    memory[page] = 1;
    TRY(ddp_all_reduce(group, floats(memory, 2 * page), DDP_SUM, NULL, NULL));
    CHECK(memory[page] == (float)size && memory[page + 1] == 0);
    ddp_adopted_destroy(adopted);
    CHECK(memory[page] == (float)size);
    free(memory);
    return DDP_OK;
}

static ddp_status collectives(ddp_group* group) {
    const int rank = ddp_group_rank(group), size = ddp_group_size(group);
    CHECK(ddp_group_local_rank(group) == rank && ddp_group_local_size(group) == size);
    CHECK(ddp_group_device(group) == 0 && strcmp(ddp_group_backend(group), "shm") == 0);
    ddp_publish_progress(group, 3, 1.5);
    TRY(call_reductions(group, rank, size));
    TRY(call_copies(group, rank, size));
    if (size > 1) TRY(call_transfers(group, rank, size));
    return call_parts(group, rank, size);
}

static ddp_status reducer(ddp_group* group) {
    const int rank = ddp_group_rank(group), size = ddp_group_size(group);
    float values[5] = {(float)rank, 2, 3, 4, 5}, grads[5] = {0};
    const ddp_parameter parameters[2] = {{"w", floats(values, 3), grads},
                                         {"b", floats(values + 3, 2), grads + 3}};
    ddp_reducer* made = NULL;
    TRY(ddp_reducer_create(group, parameters, 2, "bucket_cap_mb=1,first_bucket_mb=0.5", &made));
    CHECK(values[0] == 0);  // rank 0's
    int averaged = -1;
    TRY(ddp_reducer_set_sync(made, 0));
    for (int turn = 0; turn < 2; ++turn) {
        if (turn == 1) TRY(ddp_reducer_set_sync(made, 1));
        TRY(ddp_reducer_start_backward(made, NULL, 0, NULL));
        for (size_t i = 0; i < 5; ++i) grads[i] += (float)(rank + 1);
        TRY(ddp_reducer_mark_ready(made, 1, NULL));
        TRY(ddp_reducer_mark_ready(made, 0, NULL));
        TRY(ddp_reducer_wait(made, NULL, &averaged));
        CHECK(averaged == turn);
    }
    for (size_t i = 0; i < 5; ++i) CHECK(grads[i] == (float)(size + 1));
    CHECK(ddp_reducer_mark_ready(made, 2, NULL) == DDP_USAGE_ERROR);
    ddp_reducer* second = NULL;
    CHECK(ddp_reducer_create(group, parameters, 2, NULL, &second) == DDP_USAGE_ERROR);
    CHECK(strstr(ddp_last_error(), "w already belongs to another reducer") != NULL);
    ddp_reducer_destroy(made);
    TRY(ddp_reducer_create(group, parameters, 2, NULL, &second));
    ddp_reducer_destroy(second);
    CHECK(ddp_reducer_create(group, parameters, 2, "bucket_cap=1", &made) == DDP_USAGE_ERROR);
    CHECK(strstr(ddp_last_error(), "no option bucket_cap; there are: bucket_cap_mb, ") != NULL);
    return DDP_OK;
}

static ddp_status sampler(ddp_group* group) {
    const int rank = ddp_group_rank(group), size = ddp_group_size(group);
    ddp_sampler* made = NULL;
    TRY(ddp_sampler_create(17, rank, size, "shuffle=true,seed=3,drop_last=0", &made));
    TRY(ddp_sampler_set_epoch(made, 2, 0));
    const size_t* indices = NULL;
    size_t count = 0;
    TRY(ddp_sampler_indices(made, &indices, &count));
    CHECK(count == (17 + (size_t)size - 1) / (size_t)size);
    int64_t seen[17] = {0};
    for (size_t i = 0; i < count; ++i) ++seen[indices[i]];
    TRY(ddp_all_reduce(group, ddp_cpu_tensor(seen, 17, DDP_INT64), DDP_SUM, NULL, NULL));
    for (int i = 0; i < 17; ++i) CHECK(seen[i] >= 1);
    ddp_sampler_destroy(made);
    return DDP_OK;
}

// Into the folder that the second word names.
static ddp_status checkpoints(ddp_group* group) {
    CHECK(argument_count == 3);
    const int rank = ddp_group_rank(group);
    float weights[6] = {1, 2, 3, 4, 5, 6};
    const int64_t shape[2] = {2, 3};
    const ddp_named_tensor tensor = {"net.weight", floats(weights, 6), shape, 2};
    ddp_checkpoints* made = NULL;
    TRY(ddp_checkpoints_create(arguments[2], group, "keep_last=1,timeout=60", &made));
    ddp_progress progress = {-1, 1, -1};
    TRY(ddp_checkpoints_resume(made, &tensor, 1, &progress));
    CHECK(progress.epoch == 0 && progress.samples == 0 && progress.step == 0);
    progress.epoch = 2;
    progress.samples = 30;
    progress.step = 77;
    TRY(ddp_checkpoints_save(made, progress, &tensor, 1));
    progress.step = 78;
    weights[5] = 60;
    TRY(ddp_checkpoints_save_async(made, progress, &tensor, 1));
    TRY(ddp_checkpoints_wait(made));
    memset(weights, 0, sizeof weights);
    memset(&progress, 0, sizeof progress);
    TRY(ddp_checkpoints_resume(made, &tensor, 1, &progress));
    CHECK(progress.epoch == 2 && progress.samples == 30 && progress.step == 78);
    CHECK(weights[0] == 1 && weights[5] == 60);
    const ddp_named_tensor other = {"net.bias", floats(weights, 6), NULL, 0};
    CHECK(ddp_checkpoints_resume(made, &other, 1, &progress) == DDP_CHECKPOINT_ERROR);
    ddp_checkpoints_destroy(made);
    static const char* const endings[2] = {"safetensors", "pth"};
    for (int i = 0; i < 2; ++i) {
        char file[512];
        snprintf(file, sizeof file, "%s/rank%d.%s", arguments[2], rank, endings[i]);
        TRY(ddp_write_tensors(file, &tensor, 1));
        weights[2] = 0;
        TRY(ddp_read_tensors(file, &tensor, 1));
        CHECK(weights[2] == 3);
        CHECK(ddp_read_tensors(file, &other, 1) == DDP_CHECKPOINT_ERROR);
    }
    return DDP_OK;
}

// Rank 1 calls another operation than the others.
static ddp_status mismatch(ddp_group* group) {
    float number = 0;
    if (ddp_group_rank(group) == 1) {
        return ddp_broadcast(group, floats(&number, 1), 0, NULL, NULL);
    }
    return ddp_all_reduce(group, floats(&number, 1), DDP_SUM, NULL, NULL);
}

static ddp_status wait_for_dead(ddp_group* group) {
    if (ddp_group_rank(group) == 1) abort();
    const ddp_status status = ddp_barrier(group);
    if (status == DDP_PEER_ERROR && ddp_last_error_rank() == 1) puts("rank 1 is to blame");
    fflush(stdout);
    return status;
}

// It is to blame for rank 0, which returns that after it has cleaned up in vain.
static ddp_status return_peer_error(ddp_group* group) {
    if (ddp_group_rank(group) == 1) abort();
    const ddp_status status = ddp_barrier(group);
    float number = 0;
    const ddp_named_tensor tensor = {"w", floats(&number, 1), NULL, 0};
    if (ddp_read_tensors("/nowhere", &tensor, 1) == DDP_OK) return DDP_OK;
    return status;
}

// In the middle of a backward.
static ddp_status leave_backward(ddp_group* group) {
    float values[2] = {0}, grads[2] = {0};
    const ddp_parameter parameters[2] = {{"w", floats(values, 1), grads},
                                         {"b", floats(values + 1, 1), grads + 1}};
    ddp_reducer* made = NULL;
    TRY(ddp_reducer_create(group, parameters, 2, NULL, &made));
    TRY(ddp_reducer_mark_ready(made, 1, NULL));
    ddp_status status = DDP_OK;
    if (ddp_group_rank(group) == 1) {
        status = ddp_fail("a kernel has failed");
    } else {
        TRY(ddp_reducer_mark_ready(made, 0, NULL));
        status = ddp_reducer_wait(made, NULL, NULL);
    }
    ddp_reducer_destroy(made);
    if (ddp_group_rank(group) == 1) {  // the others do not wait for its end
        char word[8];
        if (fgets(word, sizeof word, stdin) != NULL) return DDP_ERROR;
    } else if (status == DDP_PEER_ERROR && ddp_last_error_rank() == 1) {
        puts("rank 1 has left the backward");
    }
    return status;
}

static ddp_status give_up(ddp_group* group) {
    if (ddp_group_rank(group) == 0) return ddp_fail("there is no data set");
    return ddp_barrier(group);
}

static ddp_status run(void* argument) {
    static const struct {
        const char* name;
        ddp_status (*body)(ddp_group*);
    } cases[] = {{"collectives", collectives},
                 {"reducer", reducer},
                 {"sampler", sampler},
                 {"checkpoints", checkpoints},
                 {"mismatch", mismatch},
                 {"wait_for_dead", wait_for_dead},
                 {"give_up", give_up},
                 {"return_peer_error", return_peer_error},
                 {"leave_backward", leave_backward}};
    ddp_group* group = NULL;
    TRY(ddp_init_process_group("backend=shm,timeout=30", &group));
    ddp_status status = ddp_fail("there is no such case");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        if (strcmp(argument, cases[i].name) == 0) status = cases[i].body(group);
    }
    ddp_group_destroy(group);
    return status;
}

int main(int count, char** words) {
    argument_count = count;
    arguments = words;
    return count > 1 ? ddp_run_worker(run, words[1]) : 2;
}
