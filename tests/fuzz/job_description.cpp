// What ddp-launch --from-stdin takes from its input: frames with a job description or a signal.
// Input: the bytes of one.
#include "launcher/hosts/start/job_description.hpp"
#include "fuzz/seeds.hpp"

#include <ddp/error.hpp>

#include <cstdlib>

namespace {

using namespace ddp::launcher;

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    JobDescription job;
    job.greeting = "ddp-launch begins 00ff";
    job.token = ddp::launcher::JobToken::parse(std::string(64, 'a'));
    job.folder = "/home/user";
    job.environment = {"PATH=/bin", "EMPTY="};
    job.options = {"--nnodes=2", "--tty"};
    job.command = {"./train", "--lr=0.1"};
    return {encode(job), encode(JobDescription{}), encode(PassedSignal{2})};
}

// What is taken is what encode() makes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const std::string_view bytes = input.rest();
    try {
        if (encode(decode_from_starter(bytes)) != bytes) std::abort();
    } catch (const ddp::UsageError&) {
        return 0;
    }
    return 0;
}
