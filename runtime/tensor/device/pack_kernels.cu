// Packing, unpacking and scaling are one kernel, and packing 16 bits as float32 another: a table of
// pieces goes along as the parameter, and blocks take chunks of equal size off it, so that one
// large tensor among many small ones keeps the whole card busy.
#include "tensor/device/device_kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

namespace ddp::device {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned in_flight = 4;  // loads of a thread before its first store
constexpr std::size_t vector_bytes = 16;
constexpr std::size_t chunk_bytes = threads * in_flight * vector_bytes;
constexpr unsigned blocks_per_multiprocessor = 4;
constexpr unsigned table_items = 144;

enum class Way : std::uint32_t { pack, unpack };

struct Table {
    void* data[table_items];
    std::uint64_t elements[table_items];
    std::uint64_t offset[table_items];
    std::uint32_t first_chunk[table_items + 1];  // of each item; then their number
    std::uint32_t items;
    Way way;
    void* packed;
};
static_assert(sizeof(Table) + sizeof(double) <= 4096, "what all drivers take as parameters");

struct Copy {
    template <class T>
    __device__ T operator()(T value) const {
        return value;
    }
};

// Of 16 bits: in float32, rounded once.
struct Multiply {
    double factor;
    __device__ double operator()(double value) const { return value * factor; }
    __device__ float operator()(float value) const { return value * static_cast<float>(factor); }
    __device__ __half operator()(__half value) const {
        return __float2half_rn((*this)(__half2float(value)));
    }
    __device__ __nv_bfloat16 operator()(__nv_bfloat16 value) const {
        return __float2bfloat16_rn((*this)(__bfloat162float(value)));
    }
};

struct Widen {
    float factor;
    __device__ float operator()(__half value) const { return __half2float(value) * factor; }
    __device__ float operator()(__nv_bfloat16 value) const {
        return __bfloat162float(value) * factor;
    }
};

template <class Half>
struct Round;
template <>
struct Round<__half> {
    __device__ __half operator()(float value) const { return __float2half_rn(value); }
};
template <>
struct Round<__nv_bfloat16> {
    __device__ __nv_bfloat16 operator()(float value) const { return __float2bfloat16_rn(value); }
};

template <class T>
struct alignas(vector_bytes) Vector {
    T at[vector_bytes / sizeof(T)];
};

template <class T, class Operation>
__device__ auto applied(T value, Operation operation) {
    return operation(value);
}
template <class T, class Operation>
__device__ Vector<T> applied(Vector<T> value, Operation operation) {
#pragma unroll
    for (T& element : value.at) element = operation(element);
    return value;
}

// `to` may be `from`: a thread stores what it has loaded itself.
template <class To, class From, class Operation>
__device__ void move_units(To* to, const From* from, std::size_t units, Operation operation) {
    for (std::size_t start = threadIdx.x; start < units; start += threads * in_flight) {
        From held[in_flight];
#pragma unroll
        for (unsigned step = 0; step < in_flight; ++step) {
            const std::size_t at = start + step * threads;
            if (at < units) held[step] = from[at];
        }
#pragma unroll
        for (unsigned step = 0; step < in_flight; ++step) {
            const std::size_t at = start + step * threads;
            if (at < units) to[at] = applied(held[step], operation);
        }
    }
}

// By vectors between the first and the last boundary of 16 bytes, where both sides share them.
template <class T, class Operation>
__device__ void move_elements(T* to, const T* from, std::size_t count, Operation operation) {
    constexpr std::size_t per_vector = vector_bytes / sizeof(T);
    const auto to_address = reinterpret_cast<std::uintptr_t>(to);
    if ((to_address ^ reinterpret_cast<std::uintptr_t>(from)) % vector_bytes != 0) {
        move_units(to, from, count, operation);
        return;
    }
    const std::size_t to_boundary = (0 - to_address) % vector_bytes / sizeof(T);
    const std::size_t head = to_boundary < count ? to_boundary : count;
    const std::size_t vectors = (count - head) / per_vector;
    const std::size_t tail = head + vectors * per_vector;
    move_units(to, from, head, operation);
    move_units(reinterpret_cast<Vector<T>*>(to + head),
               reinterpret_cast<const Vector<T>*>(from + head), vectors, operation);
    move_units(to + tail, from + tail, count - tail, operation);
}

__device__ std::uint32_t item_of(const Table& table, std::uint32_t chunk) {
    std::uint32_t low = 0;
    std::uint32_t high = table.items;
    while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        if (table.first_chunk[middle] <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

template <class T, class Operation>
__global__ void __launch_bounds__(threads)
    move_items(const __grid_constant__ Table table, const Operation operation) {
    constexpr std::size_t per_chunk = chunk_bytes / sizeof(T);
    const std::uint32_t chunks = table.first_chunk[table.items];
    for (std::uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const std::uint32_t item = item_of(table, chunk);
        const std::size_t first = (chunk - table.first_chunk[item]) * per_chunk;
        const std::size_t left = table.elements[item] - first;
        T* const data = static_cast<T*>(table.data[item]) + first;
        T* const packed = static_cast<T*>(table.packed) + table.offset[item] + first;
        const std::size_t count = left < per_chunk ? left : per_chunk;
        if (table.way == Way::pack) {
            move_elements(packed, data, count, operation);
        } else {
            move_elements(data, packed, count, operation);
        }
    }
}

// The table's items are of 16 bits, what is packed of 32. Rounding back takes no factor.
template <class Half>
__global__ void __launch_bounds__(threads)
    convert_items(const __grid_constant__ Table table, const float factor) {
    constexpr std::size_t per_chunk = chunk_bytes / sizeof(Half);
    const std::uint32_t chunks = table.first_chunk[table.items];
    for (std::uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const std::uint32_t item = item_of(table, chunk);
        const std::size_t first = (chunk - table.first_chunk[item]) * per_chunk;
        const std::size_t left = table.elements[item] - first;
        Half* const data = static_cast<Half*>(table.data[item]) + first;
        float* const packed = static_cast<float*>(table.packed) + table.offset[item] + first;
        const std::size_t count = left < per_chunk ? left : per_chunk;
        if (table.way == Way::pack) {
            move_units(packed, data, count, Widen{factor});
        } else {
            move_units(data, packed, count, Round<Half>{});
        }
    }
}

template <class Half>
const void* converting_kernel() {
    return reinterpret_cast<const void*>(&convert_items<Half>);
}

template <class T, class Operation>
const void* kernel() {
    return reinterpret_cast<const void*>(&move_items<T, Operation>);
}

template <class Parameter>
cudaError_t launch_of_table(const void* kernel, Table& table, Parameter parameter,
                            const LaunchConfig& config) {
    const unsigned most = config.multiprocessors * blocks_per_multiprocessor;
    const unsigned blocks = std::min(table.first_chunk[table.items], most);
    void* parameters[] = {&table, &parameter};
    return cudaLaunchKernel(kernel, blocks, threads, parameters, 0, config.stream);
}

template <class T, class Operation>
cudaError_t launch(Table& table, Operation operation, const LaunchConfig& config) {
    return launch_of_table(kernel<T, Operation>(), table, operation, config);
}

cudaError_t launch_converting(Table& table, DType dtype, double factor,
                              const LaunchConfig& config) {
    const void* const kernel =
        dtype == DType::float16 ? converting_kernel<__half>() : converting_kernel<__nv_bfloat16>();
    return launch_of_table(kernel, table, static_cast<float>(factor), config);
}

cudaError_t launch_copy(Table& table, std::size_t element_bytes, const LaunchConfig& config) {
    switch (element_bytes) {
        case 1:
            return launch<std::uint8_t>(table, Copy{}, config);
        case 2:
            return launch<std::uint16_t>(table, Copy{}, config);
        case 4:
            return launch<std::uint32_t>(table, Copy{}, config);
        default:
            return launch<std::uint64_t>(table, Copy{}, config);
    }
}

cudaError_t launch_multiply(Table& table, DType dtype, double factor, const LaunchConfig& config) {
    switch (dtype) {
        case DType::float32:
            return launch<float>(table, Multiply{factor}, config);
        case DType::float64:
            return launch<double>(table, Multiply{factor}, config);
        case DType::float16:
            return launch<__half>(table, Multiply{factor}, config);
        case DType::bfloat16:
            return launch<__nv_bfloat16>(table, Multiply{factor}, config);
        case DType::int32:
        case DType::int64:
        case DType::uint8:
        case DType::int8:
        case DType::int16:
        case DType::boolean:
            break;
    }
    return cudaErrorInvalidValue;
}

void append(Table& table, const PackItem& item, std::size_t element_bytes) {
    const std::uint32_t at = table.items++;
    table.data[at] = item.data;
    table.elements[at] = item.elements;
    table.offset[at] = item.offset;
    const std::size_t chunks = (item.elements * element_bytes + chunk_bytes - 1) / chunk_bytes;
    table.first_chunk[at + 1] = table.first_chunk[at] + static_cast<std::uint32_t>(chunks);
}

// Calls `launch_table` for as many items at a time as a table holds.
template <class LaunchTable>
cudaError_t for_tables(std::span<const PackItem> items, void* packed, DType dtype, Way way,
                       LaunchTable launch_table) {
    const std::size_t element_bytes = size_of(dtype);
    Table table;
    const auto clear = [&] {
        table.items = 0;
        table.first_chunk[0] = 0;
    };
    table.packed = packed;
    table.way = way;
    clear();
    for (const PackItem& item : items) {
        if (item.elements == 0) continue;
        append(table, item, element_bytes);
        if (table.items < table_items) continue;
        if (const cudaError_t error = launch_table(table)) return error;
        clear();
    }
    return table.items == 0 ? cudaSuccess : launch_table(table);
}

}  // namespace

cudaError_t load_pack_kernels() {
    const void* const all[] = {kernel<std::uint8_t, Copy>(),  kernel<std::uint16_t, Copy>(),
                               kernel<std::uint32_t, Copy>(), kernel<std::uint64_t, Copy>(),
                               kernel<float, Multiply>(),     kernel<double, Multiply>(),
                               kernel<__half, Multiply>(),    kernel<__nv_bfloat16, Multiply>(),
                               converting_kernel<__half>(),   converting_kernel<__nv_bfloat16>()};
    for (const void* const one : all) {
        cudaFuncAttributes attributes;
        if (const cudaError_t error = cudaFuncGetAttributes(&attributes, one)) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_pack(std::span<const PackItem> items, void* packed, DType dtype, double factor,
                        const LaunchConfig& config) {
    return for_tables(items, packed, dtype, Way::pack, [&](Table& table) {
        return factor == 1 ? launch_copy(table, size_of(dtype), config)
                           : launch_multiply(table, dtype, factor, config);
    });
}

cudaError_t launch_unpack(const void* packed, std::span<const PackItem> items, DType dtype,
                          const LaunchConfig& config) {
    return for_tables(items, const_cast<void*>(packed), dtype, Way::unpack,
                      [&](Table& table) { return launch_copy(table, size_of(dtype), config); });
}

cudaError_t launch_pack_widened(std::span<const PackItem> items, DType dtype, void* packed,
                                double factor, const LaunchConfig& config) {
    return for_tables(items, packed, dtype, Way::pack, [&](Table& table) {
        return launch_converting(table, dtype, factor, config);
    });
}

cudaError_t launch_unpack_rounded(const void* packed, std::span<const PackItem> items, DType dtype,
                                  const LaunchConfig& config) {
    return for_tables(items, const_cast<void*>(packed), dtype, Way::unpack,
                      [&](Table& table) { return launch_converting(table, dtype, 1, config); });
}

}  // namespace ddp::device
