/* The stand-in NCCL: a shared library with NCCL's C interface that moves host memory, for tests of
 * the NCCL backend where there is no GPU. Ranks are threads or processes of one host; devices and
 * streams are those of HostDeviceApi (tests/support), which the program that opens it links.
 *
 * libnccl_stand_in.so is NCCL 2.28.9. Variants are of an older version and lack what that lacks:
 *   libnccl_stand_in_windowless.so  2.26.5: no Shrink, windows, AlltoAll, Gather, Scatter, Revoke
 *   libnccl_stand_in_older.so       2.18.5: no MemAlloc, MemFree, Register, Deregister either
 *   libnccl_stand_in_oldest.so      2.14.3: no Split either
 *   libnccl_stand_in_broken.so      2.28.9 without AllReduce, which no NCCL is
 * Another version is had by VERSION, on the variant before it. It decides what differs otherwise:
 *   before 2.17    a config is its first field alone, which cannot be undefined
 *   before 2.18    init needs the caller's variable of the communicator until it is done
 *   from 2.22 on   Abort and Revoke have two halves (below); a config of no size is refused
 *   2.25.1         Abort may hang: FAULTS=hang:<rank>:abort
 *   from 2.29 on   a window of null or nothing is ncclInvalidArgument, not a success without one;
 *                  where there are none (SYMMETRIC=0) it is null
 *   2.27/28/29     a config has more fields / yet more / may combine policies
 * What is newer than 2.30 is as 2.30 is: 2.32 has not been read.
 *
 * It behaves as NCCL does where a caller can tell, on the uncomfortable side where NCCL may choose:
 * - A communicator comes up on a thread of its own and waits for its peers for ever; so do the
 *   launches of a non-blocking one, while a blocking one's hold their caller.
 * - From 2.22 on Abort and Revoke in a group let what waits end, also on a thread that is inside
 *   the communicator, and leave the rest to ncclGroupEnd, which nobody may be inside for; before,
 *   and outside of a group, nobody may be inside for either.
 * - A collective is a piece of work on the stream it is given and waits there for its peers, for
 *   ever: also for one that has died, has aborted, or has called something else.
 * - ncclAvg and pre-multiplied sums of floats multiply by the factor as NCCL has it, rounded to the
 *   element's type, before they add: 1/3 in bfloat16 is not a third. Sums add in rank order.
 * - What is put on a stream that is captured goes into the graph, and runs anew in each launch;
 *   until the graph is destroyed Finalize waits, also when it is aborted, and so does Abort unless
 *   Revoke came before; to free the communicator under the graph is misuse.
 * - A split without a color that is aborted, or of which a peer has gone, is misuse: NCCL crashes.
 * - Destroy and Finalize wait for all ranks. Split and Shrink fill in the new communicator only
 *   when the parent has left ncclInProgress; in a group they come, with the windows, at its end.
 * - Only who remains calls Shrink. It sorts the caller's list and waits for the others who remain,
 *   for ever if they mean others. With NCCL_SHRINK_ABORT it ends the parent's work first, and goes
 *   on when the streams have passed it; the parent can then be split, shrunk and ended, for which
 *   it waits for nobody else, but no operation runs on it. Without, work in flight goes on.
 * - A child shares the parent's resources if the parent's config (not the child's) has splitShare,
 *   for Shrink shrinkShare, unless the parent is revoked or Shrink aborts. Any of those that share
 *   may be destroyed first. Abort, Revoke and NCCL_SHRINK_ABORT of one end the work of all, which
 *   nothing tells; the others are of no more use. Their work is in one order, that of the calls on
 *   all their streams: what waits in one for its peers holds up the rest, and a split until it has
 *   ended.
 * - A config is read as far as the library knows it and the caller's size goes; what the caller's
 *   version had not is undefined, and undefined is NCCL's default, also in a child: only no config
 *   at all is the parent's. Values out of range are ncclInvalidArgument, as is minCTAs without
 *   maxCTAs.
 * - WindowRegister waits for all ranks, for ever, and takes memory of ncclMemAlloc only (else
 *   ncclUnhandledCudaError), from a page of its allocation on (else ncclInvalidArgument), which is
 *   said to one rank while the others wait. WindowDeregister waits for nobody.
 * - Breaking a rule that NCCL leaves undefined prints "stand-in NCCL: misuse: ..." and ends the
 *   process with code 97: an operation, or any call but GetAsyncError, Abort and Revoke, while the
 *   communicator is in progress; a call after Destroy or Abort; an operation after Finalize;
 *   Finalize after Revoke; two threads inside one communicator at once; Destroy with work in
 *   flight; a stream, buffer or current device that is not the communicator's; an operation after
 *   the work of the communicator was ended with another's, or by Shrink; Shrink of ranks that there
 *   are not; windows of different size, place or flags; MemFree before Deregister.
 *
 * Knobs: environment variables DDP_STAND_IN_<NAME>, read once, or ddp_stand_in_set(NAME, value).
 *   VERSION=n                what ncclGetVersion says: 22809, or the variant's
 *   LENIENT=1                misuse is ncclInvalidUsage instead of an end
 *   OPERATION_DELAY_US=n     each operation starts that much later on its stream
 *   LAUNCH_DELAY_US=n        an operation is put on its stream that much later; the call takes as
 *                            long (Abort and Revoke end it), or is ncclInProgress until then
 *                            (non-blocking communicators)
 *   LAUNCH_POLLS=n           an operation of a non-blocking communicator is ncclInProgress for the
 *                            first n polls, and is put on its stream at the last of them
 *   SYMMETRIC=0              the GPUs do not reach each other's memory: there are no windows, and
 *                            ncclCommWindowRegister is a success for each rank alone
 *   REMOTE_ERROR_MS=n        that long after a peer's process has ended, or a peer has aborted,
 *                            GetAsyncError says ncclRemoteError; without it never
 *   FAULTS=fault,...         each <kind>:<rank>:<when>[:<ncclResult_t>]; <when> is the number of an
 *                            operation (from 0, a communicator's own count), or init, or abort, or
 *                            window: any WindowRegister, or id: ncclGetUniqueId, which knows no
 *                            rank and takes part as rank 0; init is a Split's, too: fail by
 *                            the rank of the parent, the rest by the new one; or split, which
 *                            only fails: at the Split's end, by the rank of the parent
 *     die                    SIGKILL to the process: as the operation starts, in init or window
 *     hang                   it never ends (Abort ends all but abort)
 *     error                  GetAsyncError says the result; what it is for never ends
 *     fail                   the call of the operation, init, window or id returns it at once; of the
 *                            split when it is done everywhere */
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
