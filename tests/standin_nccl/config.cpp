#include "standin_nccl/config.hpp"

#include "standin_nccl/knobs.hpp"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string>

namespace stand_in {

namespace {
constexpr unsigned config_magic = 0xcafebeef;
constexpr int most_channels = 64;

// How much of the struct a library has. The rest of a newer caller's is not looked at, and that of
// an older caller is undefined.
std::size_t known_bytes(int version) {
    if (version < 21700) return offsetof(ncclConfig_t, cgaClusterSize);
    if (version < 21800) return offsetof(ncclConfig_t, splitShare);
    if (version < 22700) return offsetof(ncclConfig_t, trafficClass);
    if (version < 22800) return offsetof(ncclConfig_t, nChannelsPerNetPeer);
    return sizeof(ncclConfig_t);
}

ncclConfig_t copy_of(const ncclConfig_t& config, int version) {
    ncclConfig_t copy = NCCL_CONFIG_INITIALIZER;
    if (version < 21700) copy.blocking = 1;  // those know no undefined value
    if (version >= 22203) copy.magic = 0;    // those before take one of no size for their own
    std::size_t size = 0;
    std::memcpy(&size, &config, sizeof size);
    std::memcpy(&copy, &config, std::min(size, known_bytes(version)));
    return copy;
}

// What the caller's library did not have is whatever lay there.
void forget_what_is_newer(ncclConfig_t& config) {
    if (config.version < NCCL_VERSION(2, 14, 0)) config.blocking = NCCL_CONFIG_UNDEF_INT;
    if (config.version < NCCL_VERSION(2, 17, 0)) {
        config.cgaClusterSize = config.minCTAs = config.maxCTAs = NCCL_CONFIG_UNDEF_INT;
    }
    if (config.version < NCCL_VERSION(2, 27, 0)) {
        config.collnetEnable = config.CTAPolicy = NCCL_CONFIG_UNDEF_INT;
        config.shrinkShare = config.nvlsCTAs = NCCL_CONFIG_UNDEF_INT;
    }
    if (config.version < NCCL_VERSION(2, 28, 0)) {
        config.nChannelsPerNetPeer = config.nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT;
    }
}

int largest_policy(int version) {
    if (version < 22800) return NCCL_CTA_POLICY_EFFICIENCY;
    return version < 22902 ? NCCL_CTA_POLICY_ZERO
                           : NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
}

bool is_within(int value, int least, int most) {
    return value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most);
}

// The field that NCCL refuses; null: none.
const char* refused_field(const ncclConfig_t& config, int version) {
    if (version < 21700) {
        return config.blocking == 0 || config.blocking == 1 ? nullptr : "blocking";
    }
    constexpr int any = INT_MAX;
    if (!is_within(config.blocking, 0, 1)) return "blocking";
    if (!is_within(config.cgaClusterSize, 0, any)) return "cgaClusterSize";
    // With the undefined value, which is the least: a minimum needs a maximum beside it.
    const bool in_order = config.minCTAs <= config.maxCTAs;
    if (!is_within(config.minCTAs, 1, any) || !is_within(config.maxCTAs, 1, any) || !in_order) {
        return "minCTAs or maxCTAs";
    }
    if (!is_within(config.splitShare, 0, 1)) return "splitShare";
    if (version < 22700) return nullptr;
    if (!is_within(config.collnetEnable, 0, 1)) return "collnetEnable";
    if (!is_within(config.CTAPolicy, 0, largest_policy(version))) return "CTAPolicy";
    if (!is_within(config.shrinkShare, 0, 1)) return "shrinkShare";
    if (!is_within(config.nvlsCTAs, 1, any)) return "nvlsCTAs";
    if (version < 22800) return nullptr;
    if (!is_within(config.nChannelsPerNetPeer, 1, most_channels)) return "nChannelsPerNetPeer";
    if (!is_within(config.nvlinkCentricSched, 0, 1)) return "nvlinkCentricSched";
    return nullptr;
}
}  // namespace

std::optional<Config> read_config(const ncclConfig_t* config) {
    if (config == nullptr) return Config{};
    const int version = knobs().version;
    ncclConfig_t copy = copy_of(*config, version);
    if (copy.magic != config_magic) {
        (void)failed(ncclInvalidArgument, "the config was not initialised");
        return std::nullopt;
    }
    if (version >= 21700) forget_what_is_newer(copy);
    if (const char* const field = refused_field(copy, version)) {
        (void)failed(ncclInvalidArgument, std::string("the config's ") + field);
        return std::nullopt;
    }
    return Config{copy.blocking != 0, copy.splitShare == 1, copy.shrinkShare == 1};
}

}  // namespace stand_in
