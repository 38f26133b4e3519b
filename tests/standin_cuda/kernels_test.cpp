// ddp's kernels, thread by thread on the host, and the language that they are written in as the
// stand-in has it: every dtype, every offset, sizes around those of vectors, chunks and tables.
#include "standin_cuda/kernels.hpp"
#include "support/seed.hpp"
#include "tensor/device/device_kernels.hpp"

#include <ddp/half.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace ddp::standin_cuda {
namespace {

constexpr std::array all_dtypes{DType::float32, DType::float64, DType::int32,    DType::int64,
                                DType::uint8,   DType::float16, DType::bfloat16, DType::int8,
                                DType::int16,   DType::boolean};
constexpr std::array sizes{0UL,  1UL,     2UL,     3UL,     15UL,    16UL,
                           17UL, 1'023UL, 1'024UL, 1'025UL, 4'099UL, 16'385UL};
constexpr device::LaunchConfig on_default_stream{nullptr, 2};

// Of a device: with bytes around it that nobody may write.
class Guarded {
public:
    explicit Guarded(std::size_t bytes) : bytes_(bytes) {
        EXPECT_EQ(cudaMalloc(&memory_, bytes + 2 * margin), cudaSuccess);
        std::memset(memory_, fill, bytes + 2 * margin);
    }
    ~Guarded() {
        const auto* const all = static_cast<unsigned char*>(memory_);
        const auto is_fill = [](unsigned char byte) { return byte == fill; };
        EXPECT_TRUE(std::all_of(all, all + margin, is_fill)) << "written before the begin";
        EXPECT_TRUE(std::all_of(all + margin + bytes_, all + 2 * margin + bytes_, is_fill))
            << "written past the end";
        EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    unsigned char* data() { return static_cast<unsigned char*>(memory_) + margin; }

private:
    static constexpr std::size_t margin = 256;
    static constexpr unsigned char fill = 0x5a;
    std::size_t bytes_;
    void* memory_ = nullptr;
};

TEST(OwnKernels, MoveTheBitsOfEveryDtypeAtEveryOffset) {
    std::mt19937 random(store_test::random_seed());
    for (const DType dtype : all_dtypes) {
        const std::size_t element = size_of(dtype);
        for (const std::size_t size : sizes) {
            for (std::size_t shift = 0; shift < 16; shift += element) {
                SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(size) +
                             " elements, off by " + std::to_string(shift));
                const std::size_t bytes = size * element;
                const std::size_t other = random() % (16 / element) * element;
                Guarded data(bytes + shift), packed(bytes + other), back(bytes + shift);
                std::generate_n(data.data(), bytes + shift, [&] { return random() % 2; });
                device::PackItem item{data.data() + shift, size, 0};
                ASSERT_EQ(device::launch_pack({&item, 1}, packed.data() + other, dtype, 1,
                                              on_default_stream),
                          cudaSuccess);
                item.data = back.data() + shift;
                ASSERT_EQ(device::launch_unpack(packed.data() + other, {&item, 1}, dtype,
                                                on_default_stream),
                          cudaSuccess);
                ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
                ASSERT_EQ(std::memcmp(data.data() + shift, back.data() + shift, bytes), 0);
                ASSERT_EQ(std::memcmp(data.data() + shift, packed.data() + other, bytes), 0);
            }
        }
    }
}

// Items of all sizes in one call: more than a table has, with gaps between them that stay.
TEST(OwnKernels, PackRandomLayouts) {
    std::mt19937 random(store_test::random_seed());
    for (int round = 0; round < 40; ++round) {
        std::vector<std::vector<float>> values(1 + random() % 400);
        std::vector<device::PackItem> items;
        std::size_t elements = random() % 5;
        for (auto& one : values) {
            one.resize(random() % 7 == 0 ? random() % 9'000 : random() % 40);
            for (float& value : one) value = static_cast<float>(random() % 1'000) - 500;
            items.push_back({one.data(), one.size(), elements});
            elements += one.size() + random() % 5;
        }
        Guarded packed(elements * sizeof(float));
        std::vector<float> expected(elements);
        std::memcpy(expected.data(), packed.data(), elements * sizeof(float));
        for (const device::PackItem& item : items) {
            const auto* const from = static_cast<const float*>(item.data);
            for (std::size_t i = 0; i < item.elements; ++i) {
                expected[item.offset + i] = from[i] * 0.25F;
            }
        }
        ASSERT_EQ(
            device::launch_pack(items, packed.data(), DType::float32, 0.25, on_default_stream),
            cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        ASSERT_EQ(std::memcmp(packed.data(), expected.data(), elements * sizeof(float)), 0)
            << "round " << round;
    }
}

TEST(OwnKernels, WidenAndRoundHalvesAtEveryOffset) {
    std::mt19937 random(store_test::random_seed());
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
        for (const std::size_t size : sizes) {
            for (std::size_t shift = 0; shift < 8; ++shift) {
                SCOPED_TRACE(std::string(to_string(dtype)) + ", " + std::to_string(size) +
                             " elements, off by " + std::to_string(shift));
                const std::size_t bytes = 2 * (size + shift);
                const std::size_t other = random() % 4 * sizeof(float);
                Guarded data(bytes), packed(size * sizeof(float) + other), back(bytes);
                std::generate_n(reinterpret_cast<std::uint16_t*>(data.data()), size + shift,
                                [&] { return static_cast<std::uint16_t>(random() % 0x3c00); });
                device::PackItem item{data.data() + 2 * shift, size, 0};
                ASSERT_EQ(device::launch_pack_widened({&item, 1}, dtype, packed.data() + other, 2,
                                                      on_default_stream),
                          cudaSuccess);
                item.data = back.data() + 2 * shift;
                ASSERT_EQ(device::launch_unpack_rounded(packed.data() + other, {&item, 1}, dtype,
                                                        on_default_stream),
                          cudaSuccess);
                ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
                for (std::size_t i = shift; i < size + shift; ++i) {
                    std::uint16_t was = 0, is = 0;
                    std::memcpy(&was, data.data() + 2 * i, 2);
                    std::memcpy(&is, back.data() + 2 * i, 2);
                    const std::uint16_t twice =
                        dtype == DType::float16
                            ? float16(2 * static_cast<float>(float16::from_bits(was))).bits
                            : bfloat16(2 * static_cast<float>(bfloat16::from_bits(was))).bits;
                    ASSERT_EQ(is, twice) << "element " << i;
                }
            }
        }
    }
}

TEST(OwnKernels, ConvertBetweenAllDtypesAtEveryOffset) {
    for (const DType from : all_dtypes) {
        for (const DType to : all_dtypes) {
            for (const std::size_t size : {0UL, 1UL, 5UL, 1'025UL}) {
                for (const std::size_t shift : {0UL, 1UL, 2UL, 3UL}) {
                    Guarded source((size + shift) * size_of(from));
                    Guarded target((size + shift) * size_of(to));
                    std::memset(source.data(), 0, (size + shift) * size_of(from));
                    const auto view = [&](Guarded& memory, DType dtype) {
                        return TensorView(memory.data() + shift * size_of(dtype),
                                          Shape{static_cast<std::int64_t>(size)}, dtype,
                                          {DeviceType::cuda, 0});
                    };
                    ASSERT_EQ(device::launch_convert(view(source, from), view(target, to),
                                                     on_default_stream),
                              cudaSuccess);
                    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
                    const unsigned char* const got = target.data() + shift * size_of(to);
                    ASSERT_TRUE(std::all_of(got, got + size * size_of(to),
                                            [](unsigned char byte) { return byte == 0; }))
                        << to_string(from) << " to " << to_string(to);
                }
            }
        }
    }
}

// Where 32 bits end: a file of 64 MiB, again and again in a row of addresses.
TEST(OwnKernels, SoakMoveMoreThan32BitsCount) {
    constexpr std::size_t piece = std::size_t{64} << 20, pieces = 33, bytes = piece * pieces;
    const auto map = [](unsigned seed) {
        const int file = ::memfd_create("aliased", MFD_CLOEXEC);
        EXPECT_EQ(::ftruncate(file, piece), 0);
        void* const begin = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (std::size_t i = 0; i < pieces; ++i) {
            EXPECT_NE(::mmap(static_cast<char*>(begin) + i * piece, piece, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_FIXED, file, 0),
                      MAP_FAILED);
        }
        ::close(file);
        std::mt19937 random(seed);
        std::generate_n(static_cast<unsigned char*>(begin), piece, random);
        return static_cast<unsigned char*>(begin);
    };
    unsigned char* const from = map(1);
    unsigned char* const to = map(2);
    const device::PackItem item{from, bytes, 0};
    ASSERT_EQ(device::launch_pack({&item, 1}, to, DType::uint8, 1, on_default_stream), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(std::memcmp(from, to, piece), 0);
    ::munmap(from, bytes);
    ::munmap(to, bytes);
}

// The language ------------------------------------------------------------------------------------

constexpr unsigned threads = 96;

// Each thread adds its own, by halves: right only if each phase has ended before the next.
__global__ void sum_of_block(float* sums) {
    __shared__ float values[threads];
    poison_shared(&values, sizeof values);
    if (threadIdx.x == 0) sums[gridDim.x + blockIdx.x] = values[1];
    __syncthreads();
    values[threadIdx.x] = static_cast<float>(threadIdx.x + blockIdx.x);
    for (unsigned left = blockDim.x; left > 1; left = (left + 1) / 2) {
        __syncthreads();
        const unsigned half = (left + 1) / 2;
        if (threadIdx.x < left / 2) values[threadIdx.x] += values[threadIdx.x + half];
    }
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = values[0];
}

__global__ void half_waits(int) {
    if (threadIdx.x % 2 == 0) __syncthreads();
}

const Kernels test_kernels =
    Kernels(threads).synchronising(&sum_of_block, threads).synchronising(&half_waits, threads);

TEST(KernelLanguage, ThreadsOfABlockMeetAndItsMemoryIsNoNumberAtFirst) {
    float* sums = nullptr;
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sums), 8 * sizeof(float)), cudaSuccess);
    Launch(4, threads)(&sum_of_block, sums);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (unsigned block = 0; block < 4; ++block) {
        EXPECT_EQ(sums[block], static_cast<float>(threads * (threads - 1) / 2 + threads * block));
        EXPECT_TRUE(std::isnan(sums[4 + block]));
    }
    EXPECT_EQ(cudaFree(sums), cudaSuccess);
}

TEST(KernelLanguage, ALaunchOutOfBoundsIsRefused) {
    Launch(1, threads + 1)(&half_waits, 0);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    Launch(0, threads)(&half_waits, 0);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
}

TEST(KernelLanguageDeathTest, ThreadsThatPartAtABarrierEndTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            Launch(1, threads)(&half_waits, 0);
            static_cast<void>(cudaDeviceSynchronize());
        },
        "48 of 96 threads of a block ended");
}

}  // namespace
}  // namespace ddp::standin_cuda
