// Who on a host may use a store: --store-peers, DDP_STORE_PEERS.
#pragma once

namespace ddp::store {

enum class StorePeers {
    same_user,  // its server's user, root, and the job's own processes, whatever user they became
    any,        // whoever can connect
};

}  // namespace ddp::store
