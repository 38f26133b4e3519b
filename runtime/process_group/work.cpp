#include <ddp/work.hpp>

#include "process_group/operation.hpp"

namespace ddp {

Work::Work() noexcept = default;
Work::Work(std::unique_ptr<process_group::Operation> operation) noexcept
    : operation_(std::move(operation)) {}
Work::Work(Work&&) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
    if (this != &other) {
        if (operation_) operation_->wait_quietly();
        operation_ = std::move(other.operation_);
    }
    return *this;
}

Work::~Work() {
    if (operation_) operation_->wait_quietly();
}

void Work::wait() {
    if (operation_) operation_->wait();
}

void Work::wait(Stream stream) {
    if (operation_) operation_->wait_in(stream);
}

bool Work::is_completed() const noexcept { return !operation_ || operation_->is_completed(); }

}  // namespace ddp
