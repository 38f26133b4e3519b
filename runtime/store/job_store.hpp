// The store that ddp-launch serves: it knows which attempt at the job it serves.
#pragma once

#include <ddp/store.hpp>

#include <memory>

namespace ddp::store {

// As connect_tcp_store(). Throws UsageError when the server serves another attempt than this
// process was started for.
std::shared_ptr<Store> connect_job_store(const MasterAddress& master, int attempt,
                                         Store::Timeout timeout);

}  // namespace ddp::store
