// Checkpoints and files of tensors of ddp.h.
#include "c_interface/handles.hpp"
#include "c_interface/text_options.hpp"

#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <filesystem>
#include <limits>
#include <string>

namespace ddp::c_interface {
namespace {

CheckpointManager& given(ddp_checkpoints* checkpoints, const char* function) {
    return not_null(checkpoints, function, "the checkpoints").manager;
}

Progress progress_of(const ddp_progress& progress, const char* function) {
    if (progress.epoch < 0 || progress.epoch > std::numeric_limits<int>::max()) {
        throw UsageError(std::string(function) + ": epoch " + std::to_string(progress.epoch) +
                         " is none");
    }
    return {.epoch = static_cast<int>(progress.epoch),
            .samples = progress.samples,
            .step = progress.step};
}

bool is_for_torch(const std::filesystem::path& file) {
    return file.extension() == ".pth" || file.extension() == ".pt";
}

}  // namespace
}  // namespace ddp::c_interface

using namespace ddp;
using namespace ddp::c_interface;

extern "C" {

ddp_status ddp_checkpoints_create(const char* folder, ddp_group* group, const char* options,
                                  ddp_checkpoints** checkpoints) {
    return guarded(__func__, [&](const char* name) {
        ddp_checkpoints*& result = not_null(checkpoints, name, "where the checkpoints go");
        ProcessGroup& ranks = not_null(group, name, "the group").group;
        TextOptions text(name, options);
        CheckpointOptions chosen;
        text.read("keep_last", chosen.keep_last);
        text.read("timeout", chosen.timeout);
        text.finish();
        result = new ddp_checkpoints{
            CheckpointManager(&not_null(folder, name, "the folder"), ranks, chosen)};
    });
}

void ddp_checkpoints_destroy(ddp_checkpoints* checkpoints) { delete checkpoints; }

ddp_status ddp_checkpoints_save(ddp_checkpoints* checkpoints, ddp_progress progress,
                                const ddp_named_tensor* tensors, std::size_t count) {
    return guarded(__func__, [&](const char* name) {
        given(checkpoints, name)
            .save(progress_of(progress, name), named_tensors_of(tensors, count, name));
    });
}

ddp_status ddp_checkpoints_save_async(ddp_checkpoints* checkpoints, ddp_progress progress,
                                      const ddp_named_tensor* tensors, std::size_t count) {
    return guarded(__func__, [&](const char* name) {
        given(checkpoints, name)
            .save_async(progress_of(progress, name), named_tensors_of(tensors, count, name));
    });
}

ddp_status ddp_checkpoints_wait(ddp_checkpoints* checkpoints) {
    return guarded(__func__, [&](const char* name) { given(checkpoints, name).wait(); });
}

ddp_status ddp_checkpoints_resume(ddp_checkpoints* checkpoints, const ddp_named_tensor* tensors,
                                  std::size_t count, ddp_progress* progress) {
    return guarded(__func__, [&](const char* name) {
        ddp_progress& result = not_null(progress, name, "where the progress goes");
        const Progress found =
            given(checkpoints, name).resume(named_tensors_of(tensors, count, name));
        result = {.epoch = found.epoch, .samples = found.samples, .step = found.step};
    });
}

ddp_status ddp_write_tensors(const char* file, const ddp_named_tensor* tensors, std::size_t count) {
    return guarded(__func__, [&](const char* name) {
        const std::filesystem::path path = &not_null(file, name, "the file");
        const StateDict state(named_tensors_of(tensors, count, name));
        if (is_for_torch(path)) {
            write_torch_state_dict(path, state);
        } else {
            write_state_dict(path, state);
        }
    });
}

ddp_status ddp_read_tensors(const char* file, const ddp_named_tensor* tensors, std::size_t count) {
    return guarded(__func__, [&](const char* name) {
        const std::vector<NamedTensor> into = named_tensors_of(tensors, count, name);
        load_state_dict(into, read_state_dict(&not_null(file, name, "the file")));
    });
}

}  // extern "C"
