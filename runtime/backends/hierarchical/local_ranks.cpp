#include "backends/hierarchical/local_ranks.hpp"

#include <ddp/error.hpp>

#include <chrono>
#include <thread>
#include <utility>

namespace ddp::hierarchical {

using backends::Call;
using backends::PendingTransfer;
using backends::Transfer;
using gloo::AbortKind;
using gloo::WaitContext;

// What the local backend hands out, whose errors end the whole group.
class LocalTransfer : public PendingTransfer {
    template <class Body>
    auto translated(const Body& body) {
        try {
            return body();
        } catch (...) {
            ranks_->end_group({backends::describe(what_), nullptr}, mismatches_);
        }
    }

public:
    LocalTransfer(std::shared_ptr<LocalRanks> ranks, std::unique_ptr<PendingTransfer> pending,
                  const Transfer& transfer)
        : ranks_(std::move(ranks)),
          transfer_(std::move(pending)),
          what_(transfer),
          // The receiver compares the sizes, and tells the sender.
          mismatches_(transfer.direction == backends::Direction::receive
                          ? LocalRanks::Found::here
                          : LocalRanks::Found::elsewhere) {}

    bool advance() override {
        return translated([&] { return transfer_->advance(); });
    }
    bool is_done() const override { return transfer_->is_done(); }
    const Transfer& transfer() const override { return what_; }
    void rest(std::uint64_t round) override { transfer_->rest(round); }
    void wait_a_little(const base::Deadline& deadline) override {
        translated([&] { transfer_->wait_a_little(deadline); });
    }
    void give_up(const base::Deadline& deadline) override {
        try {
            transfer_->give_up(deadline);
        } catch (...) {
            ranks_->end_group({backends::describe(what_), &deadline}, mismatches_);
        }
    }

private:
    std::shared_ptr<LocalRanks> ranks_;
    std::unique_ptr<PendingTransfer> transfer_;
    Transfer what_;  // between ranks of the whole group
    LocalRanks::Found mismatches_;
};

LocalRanks::LocalRanks(std::unique_ptr<backends::Backend> backend, RankRange ranks,
                       std::shared_ptr<gloo::Mesh> mesh)
    : backend_(std::move(backend)), ranks_(ranks), mesh_(std::move(mesh)) {}

void LocalRanks::run(const Call& step, const WaitContext& context) {
    try {
        backend_->run(step, ++sequence_, *context.deadline);
    } catch (...) {
        end_group(context, Found::elsewhere);
    }
}

std::shared_ptr<void> LocalRanks::provide_memory(const Call& call, const WaitContext& context) {
    try {
        Call step = call;
        step.site = {};  // what is thrown here travels; each rank adds its own line
        return backend_->provide_memory(step, ++sequence_, *context.deadline);
    } catch (const SystemError&) {
        throw;
    } catch (...) {
        end_group(context, Found::elsewhere);
    }
}

std::unique_ptr<PendingTransfer> LocalRanks::start_transfer(std::shared_ptr<LocalRanks> self,
                                                            const Transfer& transfer) {
    Transfer here = transfer;
    here.peer -= static_cast<int>(self->ranks_.first);
    auto pending = self->backend_->start_transfer(here);
    return std::make_unique<LocalTransfer>(std::move(self), std::move(pending), transfer);
}

// From the rank that found what this one was told of in fewer words.
void LocalRanks::wait_for_word(const WaitContext& context) {
    const auto limit = base::Deadline::after(std::chrono::milliseconds{300});
    while (!mesh_->find_trouble(context.what) && !limit.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

// The steps' own numbers and sizes say nothing to the program: the errors speak of its call.
void LocalRanks::end_group(const WaitContext& context, Found mismatches) {
    gloo::AbortReason reason;
    std::string says;
    int culprit = -1;
    int teller = -1;
    try {
        throw;
    } catch (const PeerError& error) {
        reason = {AbortKind::peer_died, mesh_->rank(), context.what + ": " + error.what()};
        culprit = mesh_->rank_of_job_rank(error.rank());
        teller = culprit;
        says = " ended, or left the group, during " + context.what;
    } catch (const TimeoutError& error) {
        reason = {AbortKind::timed_out, mesh_->rank(), context.what + ": " + error.what()};
        culprit = mesh_->rank_of_job_rank(error.culprit().value_or(-1));
        const std::string within = context.deadline != nullptr
                                       ? " within " + base::to_string(context.deadline->timeout())
                                       : std::string();
        says = ", which is waited for on " + mesh_->name_of(mesh_->rank()) + ": " + context.what +
               " did not end" + within + "; is it stopped, or in other code?";
    } catch (const UsageError& error) {
        reason = {AbortKind::misused, mesh_->rank(), error.what()};
        if (mismatches == Found::elsewhere) wait_for_word(context);
    } catch (...) {  // of this rank alone, such as memory: the others hear who
        mesh_->end(
            {AbortKind::peer_died, mesh_->rank(),
             "hierarchical: " + mesh_->name_of(mesh_->rank()) + " failed in " + context.what});
        backend_->fail();
        throw;
    }
    if (culprit >= 0 && culprit != mesh_->rank()) {
        reason.culprit = culprit;
        reason.text = "hierarchical: " + mesh_->name_of(culprit) + says;
    }
    mesh_->fail_unless_told(reason, teller, context);
}

}  // namespace ddp::hierarchical
