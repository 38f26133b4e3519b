// A worker that trains for ever, in steps of three collectives, and goes wrong once:
//
//   drill_worker BACKEND FAULT RANK STEP PLACE
//
// With BACKEND nccl, where it is built so, on GPUs that are not there; the host then waits for none
// of its calls.
//
// At the first (0), second or third (2) call of a step of one rank:
//   missing      it leaves the call out
//   extra        it calls twice
//   reordered    it calls what comes next first
//   operation, dtype, count, root    it calls something else
//   stop         it stops itself
//   loop         it computes for ever
//   sleep        it sleeps for ever
//   freeze       it puts itself into a cgroup, the word behind PLACE, that is frozen then
//   death        it is killed
//   recv         it waits for what the next rank never sends
//   posted       it has posted a recv, for which it does not wait, and sleeps for ever
//   pause        it sleeps for 300 ms, and goes on
//   naps         the same, in naps of 10 ms, which a standstill makes no shorter
//   stop_and_go  it stops itself, and somebody else has to let it go on
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/tensor.hpp>

#ifdef DDP_DRILL_ON_GPU
#include "standin_cuda/cards.hpp"
#include "support/stand_in_library.hpp"
#endif

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

struct Drill {
    std::string fault;
    int rank;
    int step;
    int place;
    std::string cgroup;
};

class Program {
public:
    Program(ddp::Backend backend, Drill drill)
        : group_(ddp::init_process_group({.backend = backend})), drill_(std::move(drill)) {
        if (backend != ddp::Backend::nccl) return;
        on_gpu_.emplace(group_.allocate({16}, ddp::DType::float32, group_.device()));
        wide_on_gpu_.emplace(group_.allocate({16}, ddp::DType::float64, group_.device()));
    }

    [[noreturn]] void run() {
        for (int step = 0;; ++step) {
            for (int place = 0; place < 3; ++place) call(step, place);
            group_.publish_progress(step);
            if (step == drill_.step && group_.rank() == drill_.rank) say("done");
            std::this_thread::sleep_for(1ms);
        }
    }

private:
    void call(int step, int place) {
        const bool here =
            group_.rank() == drill_.rank && step == drill_.step && place == drill_.place;
        if (!here) return as_written(place);
        say("now");
        const std::string& fault = drill_.fault;
        if (fault == "extra") as_written(place);
        if (fault == "reordered") as_written((place + 1) % 3);
        if (fault == "operation") return other_operation();
        if (fault == "dtype") return other_dtype();
        if (fault == "count") return other_count();
        if (fault == "root") return other_root();
        if (fault == "stop" || fault == "stop_and_go") ::raise(SIGSTOP);
        if (fault == "recv") from_next();
        if (fault == "posted") posted_ = group_.recv(values(), ddp::Peer{next()});
        if (fault == "sleep" || fault == "posted") std::this_thread::sleep_for(1h);
        if (fault == "pause") std::this_thread::sleep_for(300ms);
        for (int nap = 0; nap < 25 && fault == "naps"; ++nap) std::this_thread::sleep_for(10ms);
        if (fault == "death") ::raise(SIGKILL);
        if (fault == "freeze") freeze();
        for (volatile bool goes_on = fault == "loop"; goes_on;) {
        }
        if (fault != "missing") as_written(place);
    }
    void as_written(int place) {
        if (place == 0) sum();
        if (place == 1) copy();
        if (place == 2) on_gpu_ ? top() : meet();
    }
    // Each a line of its own, which verdicts name.
    void sum() { group_.all_reduce(values()).wait(); }
    void copy() { group_.broadcast(values()).wait(); }
    void meet() { group_.barrier().wait(); }
    void top() { group_.all_reduce(values(), ddp::ReduceOp::max).wait(); }
    void from_next() { group_.recv(values(), ddp::Peer{next()}).wait(); }
    void other_operation() { group_.all_reduce(values(), ddp::ReduceOp::product).wait(); }
    void other_dtype() { group_.all_reduce(wide_values()).wait(); }
    void other_count() { group_.all_reduce(first(15)).wait(); }
    // Neither 0 nor this rank: NCCL would end a broadcast that has two roots.
    void other_root() { group_.broadcast(values(), ddp::Root{group_.rank() == 1 ? 2 : 1}).wait(); }

    int next() const { return (group_.rank() + 1) % group_.size(); }
    ddp::TensorView values() { return on_gpu_ ? on_gpu_->view() : ddp::TensorView(values_); }
    ddp::TensorView wide_values() {
        return wide_on_gpu_ ? wide_on_gpu_->view() : ddp::TensorView(wide_);
    }
    ddp::TensorView first(std::size_t count) {
        ddp::TensorView some = values();
        some.shape = ddp::Shape{static_cast<std::int64_t>(count)};
        return some;
    }
    void freeze() const {
        std::ofstream(drill_.cgroup + "/cgroup.procs") << ::getpid() << std::endl;
        std::ofstream(drill_.cgroup + "/freezer.state") << "FROZEN" << std::endl;
    }
    void say(const char* word) const {
        std::printf("%s\n", word);
        std::fflush(stdout);
    }

    ddp::ProcessGroup group_;
    Drill drill_;
    std::array<float, 16> values_{};
    std::array<double, 16> wide_{};
    std::optional<ddp::Tensor> on_gpu_, wide_on_gpu_;
    std::optional<ddp::Work> posted_;
};

}  // namespace

int main(int argc, char** argv) {
    constexpr unsigned lifetime_s = 120;
    ::alarm(lifetime_s);
    if (argc < 6) return 98;
#ifdef DDP_DRILL_ON_GPU
    ddp::device::use_device_api(&ddp::standin_cuda::lasting_cards(4));
    ::setenv("DDP_NCCL_LIBRARY", ddp::testing::stand_in_path().c_str(), 1);
#endif
    return ddp::run_worker([&] {
        const std::string name = argv[1];
        const ddp::Backend backend = name == "gloo"   ? ddp::Backend::gloo
                                     : name == "nccl" ? ddp::Backend::nccl
                                                      : ddp::Backend::shm;
        Program(backend, {.fault = argv[2],
                          .rank = std::atoi(argv[3]),
                          .step = std::atoi(argv[4]),
                          .place = std::atoi(argv[5]),
                          .cgroup = argc > 6 ? argv[6] : ""})
            .run();
    });
}
