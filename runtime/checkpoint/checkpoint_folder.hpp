// A folder of checkpoints (format.md): each a file of tensors and a manifest, numbered. Without a
// process group: what rank 0 does. Invariants: a checkpoint is valid or does not count; the
// caller's tensors change only by copy(), of a checkpoint that is valid and fits.
#pragma once

#include <ddp/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/durable_file.hpp"
#include "checkpoint/files.hpp"
#include "checkpoint/manifest.hpp"

namespace ddp::checkpoint {

// A checkpoint in memory that is valid and fits the tensors that it was found for.
struct Found {
    struct Part {
        TensorView to;
        const std::byte* from;  // in `bytes`
    };
    Progress progress;
    FileBytes bytes;
    std::vector<Part> parts;

    void copy() const;  // into those tensors
};

class CheckpointFolder {
public:
    // Touches nothing yet. `files` must outlive it.
    CheckpointFolder(Files& files, const std::filesystem::path& dir, std::size_t keep_last);
    CheckpointFolder(const CheckpointFolder&) = delete;
    CheckpointFolder& operator=(const CheckpointFolder&) = delete;
    ~CheckpointFolder();

    // Creates the folder when it is not there; when this returns, the checkpoint survives a loss of
    // power, and all but the newest `keep_last` are gone. Throws CheckpointError; the earlier ones
    // are then intact. From the first call on the folder is locked: one job may write.
    void write(const Progress& progress, const std::vector<NamedTensor>& state);

    // The newest valid one; the damaged ones before it are skipped with a warning each. Nothing
    // when there are none. Throws CheckpointError: all are damaged, or it does not fit `state`,
    // which stays as it is.
    std::optional<Found> find(const std::vector<NamedTensor>& state);
    // The same, and copies it.
    std::optional<Progress> read(const std::vector<NamedTensor>& state);

    static std::string manifest_name(std::uint64_t number);
    static std::string tensors_name(std::uint64_t number);

private:
    struct Loaded {
        Manifest manifest;
        FileBytes bytes;
    };
    std::string path_of(const std::string& name) const { return dir_ + "/" + name; }
    std::set<std::uint64_t> scan(bool& left_overs);
    std::set<std::uint64_t> scan();
    void lock();
    void clean();
    void clean_unless_in_use();
    void remove(std::uint64_t number);
    void keep_the_last();
    std::optional<Found> find_among(const std::set<std::uint64_t>& numbers,
                                    const std::vector<NamedTensor>& state);
    Loaded load(std::uint64_t number) const;

    Files& files_;
    std::string dir_;
    std::size_t keep_last_;
    bool writes_ = false;              // this object has the folder to itself
    int lock_ = -1;                    // negative too where the file system has no locks
    std::uint64_t next_ = 1;           // above all numbers that are or were in use
    std::set<std::uint64_t> damaged_;  // found so by find()
};

}  // namespace ddp::checkpoint
