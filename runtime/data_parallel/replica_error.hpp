// An exception of a replica, with the replica's name before its text.
#pragma once

#include <ddp/device.hpp>

#include <cstddef>
#include <exception>

namespace ddp::data_parallel {

// Throws an exception of the same class, for ddp's classes and those of the standard library that
// are made from a text, else of the nearest base among these, or a ddp::Error where there is none:
// "replica 1 on cpu:1: <text>". The original is nested in it (std::rethrow_if_nested).
[[noreturn]] void rethrow_of_replica(const std::exception_ptr& error, std::size_t replica,
                                     const Device& device);

}  // namespace ddp::data_parallel
