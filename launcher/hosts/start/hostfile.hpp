// Texts that list the hosts of a job: a hostfile as Open MPI, MPICH and DeepSpeed write it, the
// value of --hosts, Slurm's node list. Pure: text in, hosts out, in the order of the text.
// Invariant: a host comes once, and what a line asks for and ddp-launch would not do is an error
// that names file and line, never ignored.
#pragma once

#include "launcher/options/option_table.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

inline constexpr int max_listed_hosts = 65'536;

struct HostSlots {
    std::string host;          // a name or an address; of an IPv6 one, without brackets
    std::optional<int> slots;  // its workers; nothing: as --nproc-per-node counts there
    friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// One host a line, in these forms, which may be mixed:
//   h1                       h1:4                      [fe80::1%eth0]:4
//   h1 slots=4               h1 slots = 4 max_slots=8  (also max-slots; alone it counts as slots)
// '#' begins a comment. Lines may end in CR LF, the last one in nothing; a byte order mark is
// skipped. `file` is what messages call it. Throws UsageError for a host that comes twice (names
// compare without case), slots that are no number from 1 to max_workers or contradict each other,
// a word that is unknown or that ddp-launch cannot honour, and a text without a host.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& file);

// "h1:4,h2,[fe80::1]:2": --hosts. The same errors, with the entry's number.
std::vector<HostSlots> parse_hosts(const GivenValue& given);

// "node[01-03,7],gpu-a[1-2]b" as scontrol show hostnames expands it: numbers keep the width of
// their range's beginning, and of several brackets in a name the last one runs fastest. Throws
// UsageError for what is no such list, and for more than max_listed_hosts hosts.
std::vector<std::string> expand_nodelist(const GivenValue& given);

}  // namespace ddp::launcher
