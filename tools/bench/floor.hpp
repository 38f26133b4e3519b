// What this host's memory can do, measured by the ranks of the run, in its rows' own sizes.
//
// The floor of a row is the larger of two times:
//  - the hand-over of one cache line between two ranks: no rank can know of another's data sooner;
//  - the traffic that the collective cannot avoid, at the rate of all ranks at work at once, each
//    on private memory. Traffic counts each byte of a user's buffer once for reading and once for
//    writing. With N ranks and a row of S bytes:
//      all_reduce                     2 N S    each rank's buffer is read once and written once
//      reduce, reduce_scatter      (N+1) S    N S are read, S are written
//      broadcast                        N S    S are read, (N-1) S are written
//      all_gather                  (N+1) S    S are read, N S are written
//      gather, scatter                  2 S
//      all_to_all, send_recv          2 N S
//    The rate is that of the loop a = b = a + b (two reads, two writes) for what reduces, of memcpy
//    for the rest, over as many bytes of traffic as the row has, divided evenly among the ranks,
//    until the last of them has moved its part. As in rows, a rank's time begins when it comes to
//    its core: where ranks take turns, that is later than the first one's.
// Small rows stay in the cores' own caches in these loops, but not in a collective: there the floor
// cannot be reached. For some of those rows bench/bare.hpp measures what can be.
#pragma once

#include "bench/layout.hpp"

#include <ddp/process_group.hpp>

#include <cstddef>
#include <string>

namespace ddp::bench {

class Floor {
public:
    // Measures the hand-over and two rates for the head. Collective. Throws UsageError when the
    // ranks are on several hosts.
    explicit Floor(ProcessGroup& group);

    // Collective.
    double measure_us(Kind kind, std::size_t bytes);
    std::string describe() const;  // "floor: ..."

private:
    ProcessGroup& group_;
    double hand_over_us_ = 0;
    double sum_gbs_ = 0;
    double copy_gbs_ = 0;
};

}  // namespace ddp::bench
