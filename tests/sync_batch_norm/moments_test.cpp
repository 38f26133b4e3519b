// The arithmetic without ranks: no matter how large the values are beside their distances, how they
// lie in memory and how they are shared out.
#include "sync_batch_norm/moments.hpp"

#include "support/seed.hpp"
#include "sync_batch_norm/reference.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::sync_batch_norm {
namespace {

using sync_batch_norm_test::Random;

struct Expected {
    long double mean = 0;
    long double m2 = 0;
};

Expected moments_of_channel(const std::vector<double>& values, const Layout& layout,
                            std::size_t channel) {
    Expected expected;
    const auto each = [&](const auto& f) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i / layout.inner % layout.channels == channel) f(values[i]);
        }
    };
    const auto count = static_cast<long double>(layout.samples * layout.inner);
    each([&](double value) { expected.mean += value / count; });
    each([&](double value) { expected.m2 += (value - expected.mean) * (value - expected.mean); });
    return expected;
}

TEST(BatchMoments, AreExactHoweverLargeTheMeanIs) {
    Random random(store_test::random_seed());
    for (const std::size_t inner : {1U, 2U, 7U, 8U, 9U, 1000U}) {
        for (const double mean : {0.0, 1e6, -1e9}) {
            const Layout layout{5, 3, inner};
            std::vector<double> values(layout.numel());
            for (double& value : values) value = mean + random.between(-0.1, 0.1);
            const Moments moments = moments_of(values.data(), layout);
            EXPECT_EQ(moments.count, 5 * inner);
            for (std::size_t c = 0; c < layout.channels; ++c) {
                const Expected expected = moments_of_channel(values, layout, c);
                EXPECT_NEAR(moments.mean[c], static_cast<double>(expected.mean),
                            1e-15 * std::abs(mean) + 1e-15);
                EXPECT_NEAR(moments.m2[c], static_cast<double>(expected.m2),
                            1e-12 * static_cast<double>(expected.m2))
                    << inner << " values around " << mean;
            }
        }
    }
}

TEST(BatchMoments, OfPartsMakeThoseOfTheWhole) {
    Random random(store_test::random_seed());
    const Layout whole{12, 4, 5};
    std::vector<float> values(whole.numel());
    for (float& value : values) value = static_cast<float>(random.between(90, 110));
    const Moments expected = moments_of(values.data(), whole);
    for (const std::vector<std::size_t>& parts :
         {std::vector<std::size_t>{12}, {5, 7}, {0, 12}, {0, 0, 12}, {1, 0, 4, 0, 7}, {3, 3, 6}}) {
        std::vector<double> rows;
        const float* from = values.data();
        for (const std::size_t samples : parts) {
            const Layout part{samples, whole.channels, whole.inner};
            const std::vector<double> row = pack(moments_of(from, part));
            EXPECT_EQ(row.size(), 2 * whole.channels + 1);
            rows.insert(rows.end(), row.begin(), row.end());
            from += part.numel();
        }
        const Moments merged = merge_rows(rows, whole.channels);
        EXPECT_EQ(merged.count, expected.count);
        EXPECT_LT(sync_batch_norm_test::difference(merged.mean, expected.mean), 1e-14);
        EXPECT_LT(sync_batch_norm_test::difference(merged.m2, expected.m2), 1e-12);
    }
}

TEST(BatchMoments, OfNothingAreNothing) {
    const Moments none = merge_rows(std::vector<double>(3 * 5), 2);
    EXPECT_EQ(none.count, 0U);
    EXPECT_EQ(none.m2, std::vector<double>(2));
    EXPECT_EQ(moments_of(static_cast<const float*>(nullptr), {0, 2, 3}).count, 0U);
    EXPECT_EQ(moments_of(static_cast<const float*>(nullptr), {4, 2, 0}).count, 0U);
}

}  // namespace
}  // namespace ddp::sync_batch_norm
