// The device API of this build: all of it where there is a GPU, and its manners where there is
// none.
#include "tensor/device_api_suite.hpp"

#include <cerrno>

namespace ddp::testing {
namespace {

const ApiSource built_in{"cuda", &device::device_api};

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceApiSuite, ::testing::Values(built_in));

class CudaDevice : public DeviceApiSuite {};
INSTANTIATE_TEST_SUITE_P(Cuda, CudaDevice, ::testing::Values(built_in));

TEST_P(CudaDevice, HasNoPlaceForAPetabyte) {
    try {
        api().allocate(std::size_t{1} << 50);
        ADD_FAILURE() << "it was there";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOMEM);
        EXPECT_NE(std::string(error.what()).find("cudaMalloc"), std::string::npos) << error.what();
    }
    EXPECT_NO_THROW(api().free(api().allocate(1)));  // the failure is forgotten
}

TEST_P(CudaDevice, NamesCallAndErrorInWords) {
    try {
        api().use(10'000);
        ADD_FAILURE() << "there are ten thousand devices";
    } catch (const BackendError& error) {
        EXPECT_EQ(error.library(), "cuda");
        EXPECT_EQ(error.code(), 101);
        EXPECT_NE(std::string(error.what()).find("cudaSetDevice"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("cudaErrorInvalidDevice"), std::string::npos);
    }
}

// In a process of its own, which has asked CUDA nothing but how many devices there are.
TEST_P(CudaDevice, KnowsWhereTheProcessHasAContext) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto ask = [] {
        const bool before = api().has_context(0);
        api().use(0);
        api().free(api().allocate(1));
        std::exit(before ? 1 : api().has_context(0) ? 0 : 2);
    };
    EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ddp::testing
