// What a DeviceApi promises. Each program that includes this names whom to ask:
//   INSTANTIATE_TEST_SUITE_P(Host, DeviceApiSuite, Values(ApiSource{"host", &find_host_api}));
// Without a device its tests are skipped; with DDP_REQUIRE_GPU=1 they fail.
#pragma once

#include "backends/reduction/reduce.hpp"
#include "support/seed.hpp"
#include "tensor/device_arrays.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace ddp::testing {

struct ApiSource {
    const char* name;
    device::DeviceApi& (*find)();
    friend std::ostream& operator<<(std::ostream& out, const ApiSource& source) {
        return out << source.name;
    }
};

class DeviceApiSuite : public ::testing::TestWithParam<ApiSource> {
protected:
    void SetUp() override {
        const device::Probe probe = api().probe();
        if (probe.devices > 0) return;
        const char* required = std::getenv("DDP_REQUIRE_GPU");
        if (required != nullptr && std::string(required) == "1") {
            FAIL() << "DDP_REQUIRE_GPU=1, but: " << probe.reason;
        }
        GTEST_SKIP() << probe.reason;
    }
    static device::DeviceApi& api() { return GetParam().find(); }
};

// Factors are applied in the type itself, and to 16 bits in float32.
template <class T>
T times(T value, double factor) {
    if constexpr (sizeof(T) == 2) {
        return T(static_cast<float>(value) * static_cast<float>(factor));
    } else {
        return value * static_cast<T>(factor);
    }
}

// Small numbers with fractions, some negative; every type of floating point has them.
template <class T>
HostArray<T> fractions(std::size_t size, int salt) {
    HostArray<T> values(size);
    for (std::size_t i = 0; i < size; ++i) {
        const auto number = static_cast<int>((i * 37 + static_cast<std::size_t>(salt)) % 255) - 127;
        values[i] = T(static_cast<float>(number) * 0.25F);
    }
    return values;
}

template <class T>
::testing::AssertionResult same_values(const HostArray<T>& got, const HostArray<T>& expected) {
    for (std::size_t i = 0; i < expected.size; ++i) {
        if (got[i] == expected[i]) continue;
        return ::testing::AssertionFailure()
               << to_string(dtype_of<T>()) << " " << i << " of " << expected.size << " is "
               << static_cast<double>(static_cast<float>(got[i])) << ", not "
               << static_cast<double>(static_cast<float>(expected[i]));
    }
    return ::testing::AssertionSuccess();
}

TEST_P(DeviceApiSuite, MemoryIsAlignedAndKnowsItsPlace) {
    const Device own{DeviceType::cuda, api().current()};
    void* const memory = api().allocate(1000);
    void* const pinned = api().allocate_pinned(1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
    EXPECT_EQ(api().device_of(memory), own);
    EXPECT_EQ(api().device_of(static_cast<char*>(memory) + 999), own);
    EXPECT_EQ(api().device_of(pinned), Device{});
    const int ordinary = 0;
    EXPECT_EQ(api().device_of(&ordinary), Device{});
    api().free_pinned(pinned);
    api().free(memory);
    EXPECT_FALSE(api().describe(own.index).empty());
    EXPECT_EQ(api().describe(own.index), api().describe(own.index));
}

TEST_P(DeviceApiSuite, CopiesBetweenAnyTwoPlaces) {
    const HostArray<float> source = fractions<float>(1001, 3);
    const std::size_t bytes = source.size * sizeof(float);
    const DeviceArray<float> first(api(), source);
    const DeviceArray<float> second(api(), HostArray<float>(source.size));
    auto* const pinned = static_cast<float*>(api().allocate_pinned(bytes));
    CUstream_st* const stream = api().make_stream(device::Priority::normal);
    api().copy(second.data(), first.data(), bytes, stream);
    api().copy(pinned, second.data(), bytes, stream);
    api().synchronize(stream);
    HostArray<float> got(source.size);
    std::copy_n(pinned, source.size, got.values.get());
    EXPECT_TRUE(same_values(got, source));
    api().set_zero(second.data(), bytes - sizeof(float), stream);
    api().synchronize(stream);
    HostArray<float> zeros(source.size);
    zeros[1000] = source[1000];
    EXPECT_TRUE(same_values(second.read(), zeros));
    api().destroy_stream(stream);
    api().free_pinned(pinned);
}

TEST_P(DeviceApiSuite, AStreamThatWaitsForAnEventSeesTheWorkBeforeIt) {
    constexpr std::size_t elements = 4'000'000;
    const DeviceArray<float> values(api(), fractions<float>(elements, 1));
    CUstream_st* const first = api().make_stream(device::Priority::high);
    CUstream_st* const second = api().make_stream(device::Priority::normal);
    CUevent_st* const event = api().make_event();
    EXPECT_TRUE(api().is_done(event));  // never recorded
    for (int doubling = 0; doubling < 20; ++doubling) api().scale(values.view(), 2, first);
    api().record(event, first);
    api().wait(second, event);
    api().scale(values.view(), 0x1p-20, second);
    api().synchronize(second);
    EXPECT_TRUE(api().is_done(event));
    api().synchronize(first);
    EXPECT_TRUE(api().is_done(Stream(first)));
    EXPECT_TRUE(same_values(values.read(), fractions<float>(elements, 1)));
    api().destroy_event(event);
    api().destroy_stream(second);
    api().destroy_stream(first);
}

TEST_P(DeviceApiSuite, TimesWhatIsBetweenTwoEvents) {
    DeviceArray<float> values(api(), HostArray<float>(1 << 20));
    CUevent_st* const first = api().make_timed_event();
    CUevent_st* const second = api().make_timed_event();
    api().record(first, {});
    for (int i = 0; i < 20; ++i) api().scale(values.view(), 2, {});
    api().record(second, {});
    api().synchronize({});
    EXPECT_GT(api().time_between(first, second).count(), 0);
    EXPECT_LT(api().time_between(second, first).count(), 0);
    api().destroy_event(first);
    api().destroy_event(second);
}

TEST_P(DeviceApiSuite, ScalesEachFloatingTypeAtAnyAlignment) {
    for_each_floating_type([](auto type) {
        using T = typename decltype(type)::type;
        for (const std::size_t size : {0UL, 1UL, 7UL, 16UL, 33UL, 4097UL, 300'001UL}) {
            for (const std::size_t shift : {0UL, 1UL, 5UL}) {
                HostArray<T> expected = fractions<T>(size + 2, 9);
                const DeviceArray<T> values(api(), expected, shift);
                api().scale(values.view(1, size), 1.0 / 3, {});  // its neighbours stay
                for (std::size_t i = 1; i <= size; ++i) expected[i] = times(expected[i], 1.0 / 3);
                ASSERT_TRUE(same_values(values.read(), expected)) << size << " off by " << shift;
            }
        }
    });
}

// More items than a launch takes, small, empty and large, at all alignments, with gaps between.
struct Layout {
    std::vector<device::PackItem> items;  // data: an offset from the first address
    std::size_t elements = 0;
};
inline Layout mixed_layout() {
    Layout layout;
    for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t elements = i == 250 ? 200'003 : i * 7 % 97;
        layout.items.push_back({nullptr, elements, layout.elements + i % 3});
        layout.elements += elements + i % 3 + i % 5;
    }
    return layout;
}

TEST_P(DeviceApiSuite, PacksAndUnpacksAllItemsAndNothingBesides) {
    const Layout layout = mixed_layout();
    for_each_floating_type([&](auto type) {
        using T = typename decltype(type)::type;
        const HostArray<T> source = fractions<T>(layout.elements, 5);
        const HostArray<T> before = fractions<T>(layout.elements, 80);
        for (const double factor : {1.0, 1.0 / 3}) {
            const DeviceArray<T> data(api(), source, 1);
            const DeviceArray<T> packed(api(), before);
            const DeviceArray<T> back(api(), before, 2);
            HostArray<T> in_packed = fractions<T>(layout.elements, 80);
            HostArray<T> in_back = fractions<T>(layout.elements, 80);
            std::vector<device::PackItem> to_pack = layout.items;
            std::vector<device::PackItem> to_unpack = layout.items;
            std::size_t first = 0;  // of the item in `data`: there all are close together
            for (std::size_t i = 0; i < layout.items.size(); ++i) {
                to_pack[i].data = data.data() + first;
                to_unpack[i].data = back.data() + first;
                for (std::size_t e = 0; e < to_pack[i].elements; ++e) {
                    const T value =
                        factor == 1 ? source[first + e] : times(source[first + e], factor);
                    in_packed[to_pack[i].offset + e] = value;
                    in_back[first + e] = value;
                }
                first += to_pack[i].elements;
            }
            api().pack(to_pack, packed.view(), factor, {});
            api().unpack(packed.view(), to_unpack, {});
            ASSERT_TRUE(same_values(packed.read(), in_packed)) << "factor " << factor;
            ASSERT_TRUE(same_values(back.read(), in_back)) << "factor " << factor;
        }
    });
}

TEST_P(DeviceApiSuite, PacksHalvesAsFloatsAndRoundsThemBack) {
    const Layout layout = mixed_layout();
    const auto check = [&](auto half) {
        using Half = decltype(half);
        const HostArray<Half> source = fractions<Half>(layout.elements, 5);
        for (const double factor : {1.0, 1.0 / 3}) {
            const DeviceArray<Half> data(api(), source, 1);
            const DeviceArray<float> packed(api(), fractions<float>(layout.elements, 80), 1);
            const DeviceArray<Half> back(api(), fractions<Half>(layout.elements, 80), 3);
            HostArray<float> in_packed = fractions<float>(layout.elements, 80);
            HostArray<Half> in_back = fractions<Half>(layout.elements, 80);
            std::vector<device::PackItem> to_pack = layout.items;
            std::vector<device::PackItem> to_unpack = layout.items;
            std::size_t first = 0;  // of the item in `data`
            for (std::size_t i = 0; i < layout.items.size(); ++i) {
                to_pack[i].data = data.data() + first;
                to_unpack[i].data = back.data() + first;
                for (std::size_t e = 0; e < to_pack[i].elements; ++e) {
                    const float value =
                        static_cast<float>(source[first + e]) * static_cast<float>(factor);
                    in_packed[to_pack[i].offset + e] = value;
                    in_back[first + e] = Half(value);
                }
                first += to_pack[i].elements;
            }
            const DType dtype = dtype_of<Half>();
            api().pack_widened(to_pack, dtype, packed.view(), factor, {});
            api().unpack_rounded(packed.view(), to_unpack, dtype, {});
            ASSERT_TRUE(same_values(packed.read(), in_packed)) << "factor " << factor;
            ASSERT_TRUE(same_values(back.read(), in_back)) << "factor " << factor;
        }
    };
    check(float16{});
    check(bfloat16{});
}

TEST_P(DeviceApiSuite, WidensNothingButHalves) {
    const DeviceArray<float> packed(api(), HostArray<float>(8));
    const DeviceArray<bfloat16> halves(api(), HostArray<bfloat16>(8));
    const device::PackItem all{halves.data(), 8, 0}, beyond{halves.data(), 8, 1};
    for (const auto& [items, dtype, into] : {std::tuple{all, DType::float32, packed.view()},
                                             std::tuple{all, DType::bfloat16, halves.view()},
                                             std::tuple{beyond, DType::bfloat16, packed.view()}}) {
        EXPECT_THROW(api().pack_widened({&items, 1}, dtype, into, 1, {}), Error);
        EXPECT_THROW(api().unpack_rounded(into, {&items, 1}, dtype, {}), Error);
    }
}

TEST_P(DeviceApiSuite, PacksAnyTypeBitByBitWithAFactorOfOne) {
    for_each_type([](auto type) {
        using T = typename decltype(type)::type;
        HostArray<T> source(100);
        for (std::size_t i = 0; i < source.size; ++i)
            source[i] = static_cast<T>(i % 2 == 0 ? 0.0F : 1.0F);
        const DeviceArray<T> data(api(), source);
        const DeviceArray<T> packed(api(), HostArray<T>(200));
        const DeviceArray<T> back(api(), HostArray<T>(100));
        const device::PackItem in{data.data(), 100, 60};
        const device::PackItem out{back.data(), 100, 60};
        api().pack({&in, 1}, packed.view(), 1, {});
        api().unpack(packed.view(), {&out, 1}, {});
        EXPECT_TRUE(same_values(back.read(), source)) << to_string(dtype_of<T>());
    });
}

TEST_P(DeviceApiSuite, ConvertsEachTypeIntoEachAsTheLanguageDoes) {
    static constexpr std::size_t elements = 1003;
    for_each_type([](auto from_type) {
        using From = typename decltype(from_type)::type;
        HostArray<From> source(elements);
        for (std::size_t i = 0; i < elements; ++i) {  // what all types have room for
            source[i] = static_cast<From>(static_cast<float>(i % 500) * 0.25F);
        }
        for_each_type([&](auto to_type) {
            using To = typename decltype(to_type)::type;
            HostArray<To> expected(elements);
            for (std::size_t i = 0; i < elements; ++i) {
                if constexpr (std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>) {
                    expected[i] = static_cast<To>(static_cast<float>(source[i]));
                } else if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
                    expected[i] = static_cast<To>(static_cast<float>(source[i]));
                } else {
                    expected[i] = static_cast<To>(source[i]);
                }
            }
            for (const std::size_t shift : {0UL, 3UL}) {
                const DeviceArray<From> from(api(), source, shift);
                const DeviceArray<To> to(api(), HostArray<To>(elements));
                api().convert(from.view(), to.view(), {});
                ASSERT_TRUE(same_values(to.read(), expected))
                    << "from " << to_string(dtype_of<From>()) << " off by " << shift;
            }
        });
    });
}

// Of any bits: subnormal numbers, infinities, halves of the last place.
TEST_P(DeviceApiSuite, RoundsAnyFloatTo16BitsAsTheHostDoes) {
    std::mt19937 random(store_test::random_seed());
    HostArray<float> source(200'000);
    for (std::size_t i = 0; i < source.size; ++i) {
        const auto any = static_cast<std::uint32_t>(random());
        const auto exponent = static_cast<std::uint32_t>(96 + random() % 48);  // of float16's
        const bool tie = i % 3 == 0;
        const std::uint32_t near = (any & 0x807fffffU) | exponent << 23;
        source[i] = std::bit_cast<float>(i % 2 == 0 ? any : tie ? near & 0xffff'f000U : near);
    }
    const DeviceArray<float> from(api(), source);
    for_types<float16, bfloat16>([&](auto type) {
        using T = typename decltype(type)::type;
        const DeviceArray<T> to(api(), HostArray<T>(source.size));
        api().convert(from.view(), to.view(), {});
        const HostArray<T> got = to.read();
        for (std::size_t i = 0; i < source.size; ++i) {
            if (std::isnan(source[i])) {
                ASSERT_TRUE(std::isnan(static_cast<float>(got[i]))) << std::hexfloat << source[i];
            } else {
                ASSERT_EQ(got[i].bits, T(source[i]).bits) << std::hexfloat << source[i];
            }
        }
    });
}

// Numbers whose sum depends on the order; the sum is in the first of them, or apart.
TEST_P(DeviceApiSuite, AddsInTheOrderOfTheTree) {
    std::mt19937 random(store_test::random_seed());
    for_each_type([&]<class T>(std::type_identity<T>) {
        if constexpr (std::is_same_v<T, bool>) return;
        for (const std::size_t many : {1U, 2U, 3U, 5U, 6U, 7U, 8U, 13U, 64U}) {
            const std::size_t size = random() % 3'000, shift = random() % 4;
            std::vector<std::unique_ptr<DeviceArray<T>>> inputs;
            std::vector<HostArray<T>> values;
            std::vector<const void*> there;
            std::vector<const std::byte*> here;
            for (std::size_t n = 0; n < many; ++n) {
                HostArray<T>& own = values.emplace_back(size);
                for (std::size_t i = 0; i < size; ++i) {
                    const int number = static_cast<int>(random() % 255) - 127;
                    if constexpr (std::is_integral_v<T>) {
                        own[i] = static_cast<T>(number);
                    } else {
                        own[i] = static_cast<T>(static_cast<float>(number) * 1.37F);
                    }
                }
                inputs.push_back(std::make_unique<DeviceArray<T>>(api(), own, shift));
                there.push_back(inputs.back()->data());
            }
            for (const auto& own : values) {
                here.push_back(reinterpret_cast<const std::byte*>(own.values.get()));
            }
            HostArray<T> sum(size);
            auto* const output = reinterpret_cast<std::byte*>(sum.values.get());
            backends::reduce(here, {&output, 1}, size, {.dtype = dtype_of<T>()});
            DeviceArray<T> apart(api(), HostArray<T>(size));
            api().add(there, apart.view(), {});
            api().add(there, inputs[0]->view(), {});
            for (const HostArray<T>& got : {apart.read(), inputs[0]->read()}) {
                ASSERT_EQ(std::memcmp(got.values.get(), sum.values.get(), size * sizeof(T)), 0)
                    << many << " times " << size << " " << to_string(dtype_of<T>());
            }
        }
    });
}

TEST_P(DeviceApiSuite, RefusesWhatItsKernelsCannotDo) {
    const DeviceArray<std::int32_t> integers(api(), HostArray<std::int32_t>(8));
    EXPECT_THROW(api().scale(integers.view(), 0.5, {}), Error);
    const DeviceArray<float> packed(api(), HostArray<float>(8));
    const device::PackItem beyond{packed.data(), 5, 4};
    EXPECT_THROW(api().pack({&beyond, 1}, packed.view(), 1, {}), Error);
    EXPECT_THROW(api().unpack(packed.view(), {&beyond, 1}, {}), Error);
}

}  // namespace ddp::testing
