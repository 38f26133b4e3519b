// Greeting: what a coordinator makes of the hello with which a connection begins: an agent that can
// join, one that cannot, or no agent at all. How it is answered is in protocol.md.
#pragma once

#include "launcher/hosts/job_proof.hpp"
#include "launcher/hosts/link.hpp"

#include <string>

namespace ddp::launcher {

// To be called whenever bytes have come, before frames are taken from the link. Lets frames follow
// an agent's hello, in TLS where there is a proof; a stranger's link is closed. Returns why the
// agent cannot join, once that is known; it has to hear so. Empty: it can, or has yet to say more.
std::string greet(Link& link, const JobProof& proof);

}  // namespace ddp::launcher
