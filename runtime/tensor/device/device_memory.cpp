#include "tensor/device/device_memory.hpp"

#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device_api.hpp"

#include <cstring>
#include <optional>
#include <utility>

namespace ddp::device {
namespace {

bool is_gpu(const Device& where) { return where.type == DeviceType::cuda; }

}  // namespace

void copy(const Device& where, void* to, const void* from, std::size_t bytes, Stream stream) {
    if (bytes == 0) return;
    if (is_gpu(where)) return device_api().copy(to, from, bytes, stream);
    std::memcpy(to, from, bytes);
}

void set_zero(const Device& where, void* memory, std::size_t bytes, Stream stream) {
    if (bytes == 0) return;
    if (is_gpu(where)) return device_api().set_zero(memory, bytes, stream);
    std::memset(memory, 0, bytes);
}

void finish(const Device& where, Stream stream) {
    if (!is_gpu(where)) return;
    const CurrentGpu current(device_api(), where.index);
    device_api().synchronize(stream);
}

void finish_all(const Device& where) {
    if (!is_gpu(where)) return;
    const CurrentGpu current(device_api(), where.index);
    device_api().synchronize_device();
}

bool is_captured(const Device& where, Stream stream) {
    if (!is_gpu(where)) return false;
    const CurrentGpu current(device_api(), where.index);
    return device_api().is_captured(stream);
}

std::vector<std::byte> read(const TensorView& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    finish_all(tensor.device);
    copy(tensor.device, bytes.data(), tensor.data, bytes.size(), {});
    finish(tensor.device, {});
    return bytes;
}

Buffer::Buffer(Buffer&& other) noexcept
    : where_(other.where_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    release();
    where_ = other.where_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
}

Buffer::~Buffer() { release(); }

std::byte* Buffer::reserve(const Device& where, std::size_t bytes) {
    if (bytes <= bytes_ && where == where_) return data_;
    release();
    where_ = where;
    std::optional<CurrentGpu> current;
    if (is_gpu(where)) current.emplace(device_api(), where.index);
    data_ = is_gpu(where) ? static_cast<std::byte*>(device_api().allocate(bytes))
                          : new std::byte[bytes];
    bytes_ = bytes;
    return data_;
}

void Buffer::release() noexcept {
    if (!is_gpu(where_)) {
        delete[] data_;
    } else if (data_ != nullptr) {
        give_back_on(device_api(), where_.index, [this] { device_api().free(data_); });
    }
    data_ = nullptr;
    bytes_ = 0;
}

StreamOrder::~StreamOrder() {
    if (event_ == nullptr) return;
    give_back_on(device_api(), where_.index, [this] { device_api().destroy_event(event_); });
}

void StreamOrder::put_after(Stream first, Stream second) {
    if (!is_gpu(where_) || first.handle() == second.handle()) return;
    const CurrentGpu current(device_api(), where_.index);
    if (event_ == nullptr) event_ = device_api().make_event();
    device_api().record(event_, first);
    device_api().wait(second, event_);
}

}  // namespace ddp::device
