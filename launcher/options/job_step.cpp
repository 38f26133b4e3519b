// The variables are those of tests/contract/worker_env_test.cpp, seen from the other side.
#include "launcher/options/job_step.hpp"

#include <ddp/error.hpp>

#include <array>
#include <charconv>

namespace ddp::launcher {
namespace {

struct Sign {
    const char* variable;  // how many there are
    int more_than;
    const char* launcher;
    const char* only_with = "";  // another variable that must be there
};

// PMIx tells a process its rank and nobody the number: whoever is not the first is one of several.
constexpr std::array signs{
    Sign{"SLURM_STEP_NUM_TASKS", 1, "srun", "SLURM_STEP_ID"},
    Sign{"SLURM_STEP_NUM_NODES", 1, "srun", "SLURM_STEP_ID"},
    Sign{"OMPI_COMM_WORLD_SIZE", 1, "Open MPI's mpirun"},
    Sign{"PMI_SIZE", 1, "an MPI launcher"},
    Sign{"MV2_COMM_WORLD_SIZE", 1, "MVAPICH's mpirun"},
    Sign{"PMIX_RANK", 0, "a PMIx launcher"},
};

bool is_more(const std::string& text, int than) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end && number > than;
}

}  // namespace

std::string step_of_several(const EnvLookup& environment) {
    for (const Sign& sign : signs) {
        if (*sign.only_with != '\0' && !environment(sign.only_with)) continue;
        const auto text = environment(sign.variable);
        if (!text || !is_more(*text, sign.more_than)) continue;
        return std::string(sign.variable) + "=" + *text + " (" + sign.launcher + ")";
    }
    return {};
}

void refuse_step_of_several(const EnvLookup& environment) {
    const std::string step = step_of_several(environment);
    if (step.empty()) return;
    throw UsageError(step +
                     " says that ddp-launch was started several times, and each would be a whole "
                     "job of its own; start it once (srun -N1 -n1, mpirun -n 1), start the program "
                     "itself that way without ddp-launch, or say --standalone if you want several "
                     "jobs");
}

}  // namespace ddp::launcher
