// Groups and collectives of ddp.h.
#include "c_interface/handles.hpp"
#include "c_interface/text_options.hpp"

#include <ddp/error.hpp>

#include <string>

namespace ddp::c_interface {
namespace {

Backend backend_of(const std::string& name, const char* function) {
    std::string known;
    for (const Backend one :
         {Backend::automatic, Backend::shm, Backend::gloo, Backend::nccl, Backend::hierarchical}) {
        if (name == to_string(one)) return one;
        known += (known.empty() ? "" : ", ") + std::string(to_string(one));
    }
    throw UsageError(std::string(function) + ": there is no backend '" + name +
                     "'; there are: " + known);
}

ProcessGroup& group_of(ddp_group* group, const char* function) {
    return not_null(group, function, "the group").group;
}

// A call of a collective, as C++ takes it.
struct Call {
    const char* function;
    ProcessGroup& group;
    Stream stream;
    CallSite site;

    TensorView view(const ddp_tensor& tensor) const { return view_of(tensor, function); }
    ReduceOp reduction(ddp_reduce_op op) const { return reduce_op_of(op, function); }
};

// Waits for what `start` starts, where nobody else will.
template <class Start>
ddp_status collective(const char* function, ddp_group* group, ddp_stream stream, ddp_work** work,
                      Start start) {
    const CallSite site = take_call_site();
    return guarded(function, [&](const char* name) {
        Work started = start(Call{name, group_of(group, name), stream, site});
        if (work == nullptr) {
            started.wait(stream);
        } else {
            *work = new ddp_work{std::move(started)};
        }
    });
}

}  // namespace
}  // namespace ddp::c_interface

using namespace ddp;
using namespace ddp::c_interface;

extern "C" {

ddp_status ddp_init_process_group(const char* options, ddp_group** group) {
    return guarded(__func__, [&](const char* name) {
        ddp_group*& result = not_null(group, name, "where the group goes");
        TextOptions given(name, options);
        InitOptions init;
        std::string backend = to_string(init.backend);
        given.read("backend", backend);
        given.read("timeout", init.timeout);
        given.finish();
        init.backend = backend_of(backend, name);
        result = new ddp_group{init_process_group(init)};
    });
}

void ddp_group_destroy(ddp_group* group) { delete group; }

int ddp_group_rank(const ddp_group* group) { return group != nullptr ? group->group.rank() : -1; }

int ddp_group_size(const ddp_group* group) { return group != nullptr ? group->group.size() : -1; }

int ddp_group_local_rank(const ddp_group* group) {
    return group != nullptr ? group->group.local_rank() : -1;
}

int ddp_group_local_size(const ddp_group* group) {
    return group != nullptr ? group->group.local_size() : -1;
}

int ddp_group_device(const ddp_group* group) {
    if (group == nullptr) return -1;
    const Device device = group->group.device();
    return device.type == DeviceType::cuda ? device.index + 1 : 0;
}

const char* ddp_group_backend(const ddp_group* group) {
    return group != nullptr ? to_string(group->group.backend()) : "";
}

void ddp_publish_progress(ddp_group* group, std::int64_t step, double steps_per_second) {
    const CallSite site = take_call_site();
    if (group != nullptr) group->group.publish_progress(step, steps_per_second, site);
}

ddp_status ddp_all_reduce(ddp_group* group, ddp_tensor tensor, ddp_reduce_op op, ddp_stream stream,
                          ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.all_reduce(call.view(tensor), call.reduction(op), call.stream, call.site);
    });
}

ddp_status ddp_reduce(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                      ddp_reduce_op op, ddp_stream stream, ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.reduce(call.view(input), call.view(output), Root{root},
                                 call.reduction(op), call.stream, call.site);
    });
}

ddp_status ddp_broadcast(ddp_group* group, ddp_tensor tensor, int root, ddp_stream stream,
                         ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.broadcast(call.view(tensor), Root{root}, call.stream, call.site);
    });
}

ddp_status ddp_all_gather(ddp_group* group, ddp_tensor input, ddp_tensor output, ddp_stream stream,
                          ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.all_gather(call.view(input), call.view(output), call.stream, call.site);
    });
}

ddp_status ddp_gather(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                      ddp_stream stream, ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.gather(call.view(input), call.view(output), Root{root}, call.stream,
                                 call.site);
    });
}

ddp_status ddp_scatter(ddp_group* group, ddp_tensor input, ddp_tensor output, int root,
                       ddp_stream stream, ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.scatter(call.view(input), call.view(output), Root{root}, call.stream,
                                  call.site);
    });
}

ddp_status ddp_reduce_scatter(ddp_group* group, ddp_tensor input, ddp_tensor output,
                              ddp_reduce_op op, ddp_stream stream, ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.reduce_scatter(call.view(input), call.view(output), call.reduction(op),
                                         call.stream, call.site);
    });
}

ddp_status ddp_all_to_all(ddp_group* group, ddp_tensor input, ddp_tensor output, ddp_stream stream,
                          ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.all_to_all(call.view(input), call.view(output), call.stream, call.site);
    });
}

ddp_status ddp_send(ddp_group* group, ddp_tensor tensor, int to, ddp_stream stream,
                    ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.send(call.view(tensor), Peer{to}, call.stream, call.site);
    });
}

ddp_status ddp_recv(ddp_group* group, ddp_tensor tensor, int from, ddp_stream stream,
                    ddp_work** work) {
    return collective(__func__, group, stream, work, [&](const Call& call) {
        return call.group.recv(call.view(tensor), Peer{from}, call.stream, call.site);
    });
}

ddp_status ddp_barrier(ddp_group* group) {
    return collective(__func__, group, nullptr, nullptr,
                      [](const Call& call) { return call.group.barrier(call.site); });
}

ddp_status ddp_wait(ddp_work* work, ddp_stream stream) {
    const std::unique_ptr<ddp_work> ended(work);
    return guarded(__func__, [&](const char*) {
        if (ended) ended->work.wait(stream);
    });
}

int ddp_work_is_completed(const ddp_work* work) {
    return work == nullptr || work->work.is_completed() ? 1 : 0;
}

ddp_status ddp_group_split(ddp_group* group, int color, int key, ddp_group** part) {
    const CallSite site = take_call_site();
    return guarded(__func__, [&](const char* name) {
        ddp_group*& result = not_null(part, name, "where the group goes");
        result = new ddp_group{group_of(group, name).split({.color = color, .key = key}, site)};
    });
}

ddp_status ddp_adopt(ddp_group* group, ddp_tensor tensor, ddp_adopted** adopted) {
    const CallSite site = take_call_site();
    return guarded(__func__, [&](const char* name) {
        ddp_adopted*& result = not_null(adopted, name, "where the handle goes");
        result = new ddp_adopted{group_of(group, name).adopt(view_of(tensor, name), site)};
    });
}

void ddp_adopted_destroy(ddp_adopted* adopted) { delete adopted; }

}  // extern "C"
