// Carries Ethernet frames between two devices of this network namespace, each frame that much later
// than it came: what sch_netem does, for kernels without it, and without /dev/net/tun. The devices
// have no other user. Frames keep their order and their offloads: a checksum that the kernel has
// not filled in yet, or a segment larger than the link's, is carried as such. Some may be lost.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace ddp::testing {

// Of so many frames one is lost; 0: none is. Calls `ready` once both devices are open, then goes on until it is killed. Returns 1 when it
// cannot begin. Needs CAP_NET_RAW.
int carry_frames(const std::string& one, const std::string& other, std::chrono::milliseconds later,
                 int loses_one_of, const std::function<void()>& ready);

}  // namespace ddp::testing
