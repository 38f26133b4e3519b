// The manifest's text is written out, so that the format cannot change unseen.
#include "checkpoint/manifest.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace {

using ddp::checkpoint::decode_manifest;
using ddp::checkpoint::Manifest;
using testing::HasSubstr;

const Manifest manifest{
    {.epoch = 3, .samples = 640, .step = 1075}, "checkpoint-12.safetensors", 37352, 0x8a9136aaU};
const std::string lines =
    "ddp checkpoint 1\nepoch 3\nsamples 640\nstep 1075\nfile checkpoint-12.safetensors\n"
    "bytes 37352\nchecksum 8a9136aa\n";

std::string error_of(const std::string& text) {
    try {
        decode_manifest(text);
    } catch (const ddp::CheckpointError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST(Manifest, IsTheTextOfTheFormat) {
    const std::string text = encode(manifest);
    EXPECT_EQ(text.substr(0, lines.size()), lines);
    EXPECT_THAT(text.substr(lines.size()), testing::MatchesRegex("crc32c [0-9a-f]{8}\n"));
}

TEST(Manifest, ComesBack) {
    const Manifest again = decode_manifest(encode(manifest));
    EXPECT_EQ(again.progress, manifest.progress);
    EXPECT_EQ(again.file, manifest.file);
    EXPECT_EQ(again.bytes, manifest.bytes);
    EXPECT_EQ(again.crc, manifest.crc);
}

TEST(Manifest, IsRefusedWhenAnyByteIsChangedOrMissing) {
    const std::string text = encode(manifest);
    for (std::size_t at = 0; at < text.size(); ++at) {
        EXPECT_NE(error_of(text.substr(0, at)), "no error") << at;
        for (int bit = 0; bit < 8; ++bit) {
            std::string changed = text;
            changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
            EXPECT_NE(error_of(changed), "no error") << at;
        }
    }
    EXPECT_NE(error_of(text + "\n"), "no error");
    EXPECT_EQ(error_of(text), "no error");
}

TEST(Manifest, SaysWhatIsWrong) {
    EXPECT_THAT(error_of("ddp checkpoint 2\n"), HasSubstr("not a manifest of version 1"));
    EXPECT_THAT(error_of("ddp checkpoint 1\nepoch x\n"), HasSubstr("epoch is not a number: \"x\""));
    EXPECT_THAT(error_of("ddp checkpoint 1\nepoch -1\n"), HasSubstr("epoch is not a number"));
    EXPECT_THAT(error_of("ddp checkpoint 1\nepoch 3\n"), HasSubstr("no line \"samples\""));
    EXPECT_THAT(error_of(lines + "crc32c 00000000\n"), HasSubstr("not the checksum of the others"));
}
