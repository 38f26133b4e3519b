// A disk in memory that knows what a loss of power may leave of it: what was not synced may be
// there, in part or not at all, and changes of names that no sync of the folder has ordered may
// have come in any order. It also fails the call that a test asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/files.hpp"

namespace ddp::checkpoint_test {

using Inode = std::size_t;

// Names and contents, all of it on the disk.
struct DiskImage {
    std::set<std::string> directories{".", "/"};
    std::map<std::string, Inode> names;
    std::vector<std::string> contents;
};

class SimulatedDisk final : public checkpoint::Files {
public:
    explicit SimulatedDisk(DiskImage image = {});

    // Called after each change, with the disk as it is then.
    std::function<void()> on_change;
    // Called before each call with its name: a result other than 0 is its errno.
    std::function<int(std::string_view call)> fault;
    std::size_t largest_write = SIZE_MAX;  // longer ones are short
    bool syncs_files = true;               // false: fsync does nothing and says that it did
    bool syncs_directories = true;
    bool maps_owners = false;  // true: every file is another user's

    // Calls `visit` with each state that the disk can have after a loss of power now.
    void for_each_power_loss(const std::function<void(const DiskImage&)>& visit) const;
    // What is sure to be there.
    const DiskImage& durable() const { return durable_; }
    const DiskImage& now() const { return now_; }
    std::size_t open_files() const { return open_.size(); }
    std::vector<std::string> names() const;
    const std::vector<std::string>& calls() const { return calls_; }

    int create(Path path) override;
    int open(Path path) override;
    int status(int fd, checkpoint::FileStatus& status) override;
    ssize_t read(int fd, std::span<std::byte> bytes) override;
    ssize_t write(int fd, std::span<const std::byte> bytes) override;
    int start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes) override;
    int sync(int fd) override;
    int close(int fd) override;
    int rename(Path from, Path to) override;
    int remove(Path path) override;
    int make_directory(Path path) override;
    int sync_directory(Path path) override;
    int list(Path path, std::vector<std::string>& names) override;
    int lock_directory(Path path) override;

private:
    struct OpenFile {
        Inode inode;
        std::size_t position = 0;
    };
    // A change of names: `from` goes, `to` comes, either may be empty.
    struct NameChange {
        std::string directory;
        std::string from;
        std::string to;
        Inode inode;
        bool is_directory = false;
    };
    static void apply(const NameChange& change, DiskImage& image);
    int begin(const std::string& call, const std::string& what);
    void change_names(NameChange change);
    void changed() const;
    int new_descriptor(Inode inode);

    DiskImage now_;
    DiskImage durable_;
    std::vector<NameChange> pending_names_;
    std::set<Inode> pending_contents_;
    std::map<int, OpenFile> open_;
    std::set<std::string> locked_;
    std::map<int, std::string> locks_;
    int next_descriptor_ = 3;
    std::vector<std::string> calls_;
};

}  // namespace ddp::checkpoint_test
