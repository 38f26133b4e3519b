// What code needs that works on the CPU's memory and on a GPU's alike. For CPU memory a stream has
// no meaning, and everything has happened when a call returns.
#pragma once

#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <vector>

struct CUevent_st;

namespace ddp::device {

// At least one side is there, the other may be ordinary host memory.
void copy(const Device& where, void* to, const void* from, std::size_t bytes, Stream stream);
void set_zero(const Device& where, void* memory, std::size_t bytes, Stream stream);
// What is on the stream, or on all of the GPU's streams, is done. Blocks.
void finish(const Device& where, Stream stream);
void finish_all(const Device& where);
// What is put there goes into a graph. Never on the CPU.
bool is_captured(const Device& where, Stream stream);
// The bytes, after the work on all streams of the GPU. Blocks.
std::vector<std::byte> read(const TensorView& tensor);

// Memory of one place, of any contents; grows when asked to, and keeps what it has then.
class Buffer {
public:
    Buffer() = default;
    ~Buffer();
    Buffer(Buffer&&) noexcept;
    Buffer& operator=(Buffer&&) noexcept;

    // At least so many bytes, of new contents when there were fewer before.
    std::byte* reserve(const Device& where, std::size_t bytes);
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    void release() noexcept;

    Device where_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Lets streams of one GPU wait for each other; made at first use.
class StreamOrder {
public:
    explicit StreamOrder(const Device& where) : where_(where) {}
    ~StreamOrder();
    StreamOrder(const StreamOrder&) = delete;
    StreamOrder& operator=(const StreamOrder&) = delete;

    // What is put on `second` from now on runs after what is on `first` now.
    void put_after(Stream first, Stream second);

private:
    Device where_;
    CUevent_st* event_ = nullptr;
};

}  // namespace ddp::device
