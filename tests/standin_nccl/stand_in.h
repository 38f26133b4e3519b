/* The stand-in NCCL: a shared library with NCCL's C interface that moves host memory, for tests of
 * the NCCL backend where there is no GPU. Ranks are threads or processes of one host; devices and
 * streams are those of HostDeviceApi (tests/support), which the program that opens it links.
 *
 * It behaves as NCCL does where a caller can tell, on the uncomfortable side where NCCL may choose:
 * - A communicator comes up on a thread of its own and waits for its peers for ever; so do the
 *   launches of a non-blocking one, while a blocking one's hold their caller.
 * - From 2.22 on Abort and Revoke in a group let what waits end, also on a thread that is inside the
 *   communicator, and leave the rest to ncclGroupEnd, which nobody may be inside for; before, and
 *   outside of a group, nobody may be inside for either.
 * - A collective is a piece of work on the stream it is given and waits there for its peers, for
 *   ever: also for one that has died, has aborted, or has called something else.
 * - ncclAvg and pre-multiplied sums of floats multiply by the factor as NCCL has it, rounded to the
 *   element's type, before they add: 1/3 in bfloat16 is not a third. Sums add in rank order.
 * - What is put on a stream that is captured goes into the graph, and runs anew in each launch; until
 *   the graph is destroyed Finalize waits, also when it is aborted, and so does Abort unless Revoke
 *   came before; to free the communicator under the graph is misuse.
 * - Destroy and Finalize wait for all ranks. Split fills in the new communicator only when the
 *   parent has left ncclInProgress.
 * - Breaking a rule that NCCL leaves undefined prints "stand-in NCCL: misuse: ..." and ends the
 *   process with code 97: an operation, or any call but GetAsyncError, Abort and Revoke, while the
 *   communicator is in progress; a call after Destroy or Abort; an operation after Finalize;
 *   Finalize after Revoke; two threads inside one communicator at once; Destroy with work in
 *   flight; a stream, buffer or current device that is not the communicator's.
 *
 * Knobs: environment variables DDP_STAND_IN_<NAME>, read once, or ddp_stand_in_set(NAME, value).
 *   VERSION=22809            what ncclGetVersion says
 *   LENIENT=1                misuse is ncclInvalidUsage instead of an end
 *   OPERATION_DELAY_US=n     each operation starts that much later on its stream
 *   LAUNCH_DELAY_US=n        an operation is put on its stream that much later; the call takes as
 *                            long (Abort and Revoke end it), or is ncclInProgress until then
 *                            (non-blocking communicators)
 *   LAUNCH_POLLS=n           an operation of a non-blocking communicator is ncclInProgress for the
 *                            first n polls, and is put on its stream at the last of them
 *   REMOTE_ERROR_MS=n        that long after a peer's process has ended, or a peer has aborted,
 *                            GetAsyncError says ncclRemoteError; without it never
 *   FAULTS=fault,...         each <kind>:<rank>:<when>[:<ncclResult_t>]; <when> is the number of an
 *                            operation (from 0, a communicator's own count), or init, or abort, or
 *                            id: ncclGetUniqueId, which knows no rank and takes part as rank 0
 *     die                    SIGKILL to the process: as the operation starts, or in init
 *     hang                   the operation, init or abort never ends (Abort ends the first two)
 *     error                  GetAsyncError says the result; the operation or init never ends
 *     fail                   the call of the operation, init or id returns the result at once */
#ifndef DDP_TESTS_STANDIN_NCCL_STAND_IN_H
#define DDP_TESTS_STANDIN_NCCL_STAND_IN_H

#ifdef __cplusplus
extern "C" {
#endif

/* Sets a knob, named without its prefix, for the operations and communicators to come; null: as if
 * never set. Aborts the process for a name or value that makes no sense. */
void ddp_stand_in_set(const char* name, const char* value);

/* How often a function ("ncclAllReduce") has been called in this process. */
int ddp_stand_in_calls(const char* function);

#ifdef __cplusplus
}
#endif

#endif
