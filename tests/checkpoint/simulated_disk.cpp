#include "checkpoint/simulated_disk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace ddp::checkpoint_test {

namespace {

constexpr std::size_t sector = 512;
constexpr std::size_t page = 4096;
constexpr std::size_t most_pending_names = 12;

std::string directory_of(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path();
    return parent.empty() ? "." : parent;
}

// What may be there of `now` when `durable` is sure. Files only grow here.
std::vector<std::string> torn(const std::string& durable, const std::string& now) {
    std::vector<std::string> results{now};
    for (std::size_t cut = durable.size(); cut < now.size(); cut = (cut / sector + 1) * sector) {
        results.push_back(now.substr(0, cut));
        // The length came before the data.
        results.push_back(now.substr(0, cut) + std::string(now.size() - cut, '\0'));
    }
    for (std::size_t at = durable.size() / page * page; at < now.size(); at += page) {
        std::string hole = now;
        const std::size_t first = std::max(at, durable.size());
        const std::size_t end = std::min(at + page, now.size());
        std::fill(hole.begin() + static_cast<std::ptrdiff_t>(first),
                  hole.begin() + static_cast<std::ptrdiff_t>(end), '\0');
        results.push_back(std::move(hole));
    }
    return results;
}

}  // namespace

SimulatedDisk::SimulatedDisk(DiskImage image) : now_(image), durable_(std::move(image)) {}

void SimulatedDisk::apply(const NameChange& change, DiskImage& image) {
    if (change.is_directory) {
        image.directories.insert(change.to);
        return;
    }
    image.names.erase(change.from);
    if (!change.to.empty()) image.names[change.to] = change.inode;
}

void SimulatedDisk::for_each_power_loss(const std::function<void(const DiskImage&)>& visit) const {
    if (pending_names_.size() > most_pending_names) throw std::logic_error("too many to enumerate");
    for (std::size_t chosen = 0; chosen < std::size_t{1} << pending_names_.size(); ++chosen) {
        DiskImage image = durable_;
        image.contents.resize(now_.contents.size());
        for (std::size_t i = 0; i < pending_names_.size(); ++i) {
            if ((chosen >> i & 1U) != 0) apply(pending_names_[i], image);
        }
        // A folder that is not there holds nothing.
        std::erase_if(image.names, [&](const auto& entry) {
            return !image.directories.contains(directory_of(entry.first));
        });
        visit(image);
        for (const Inode inode : pending_contents_) {
            const std::string before = image.contents[inode];
            for (std::string& contents : torn(before, now_.contents[inode])) {
                image.contents[inode] = std::move(contents);
                visit(image);
            }
            image.contents[inode] = before;
        }
    }
}

std::vector<std::string> SimulatedDisk::names() const {
    std::vector<std::string> names;
    for (const auto& [name, inode] : now_.names) names.push_back(name);
    return names;
}

int SimulatedDisk::begin(const std::string& call, const std::string& what) {
    calls_.push_back(call + " " + what);
    return fault ? -fault(call) : 0;
}

void SimulatedDisk::changed() const {
    if (on_change) on_change();
}

int SimulatedDisk::new_descriptor(Inode inode) {
    open_[next_descriptor_] = {inode};
    return next_descriptor_++;
}

void SimulatedDisk::change_names(NameChange change) {
    apply(change, now_);
    pending_names_.push_back(std::move(change));
    changed();
}

int SimulatedDisk::create(Path path) {
    if (const int error = begin("create", path)) return error;
    if (now_.names.contains(path)) return -EEXIST;
    if (!now_.directories.contains(directory_of(path))) return -ENOENT;
    const Inode inode = now_.contents.size();
    now_.contents.emplace_back();
    durable_.contents.emplace_back();
    change_names({directory_of(path), "", path, inode});
    return new_descriptor(inode);
}

int SimulatedDisk::open(Path path) {
    if (const int error = begin("open", path)) return error;
    const auto found = now_.names.find(path);
    return found == now_.names.end() ? -ENOENT : new_descriptor(found->second);
}

int SimulatedDisk::status(int fd, checkpoint::FileStatus& status) {
    if (const int error = begin("status", std::to_string(fd))) return error;
    status = {true, !maps_owners, now_.contents[open_.at(fd).inode].size()};
    return 0;
}

ssize_t SimulatedDisk::read(int fd, std::span<std::byte> bytes) {
    if (const int error = begin("read", std::to_string(fd))) return error;
    OpenFile& file = open_.at(fd);
    const std::string& contents = now_.contents[file.inode];
    const std::size_t count =
        std::min({bytes.size(), contents.size() - file.position, largest_write});
    std::memcpy(bytes.data(), contents.data() + file.position, count);
    file.position += count;
    return static_cast<ssize_t>(count);
}

ssize_t SimulatedDisk::write(int fd, std::span<const std::byte> bytes) {
    if (const int error = begin("write", std::to_string(fd))) return error;
    const std::size_t count = std::min(bytes.size(), largest_write);
    const Inode inode = open_.at(fd).inode;
    now_.contents[inode].append(reinterpret_cast<const char*>(bytes.data()), count);
    pending_contents_.insert(inode);
    changed();
    return static_cast<ssize_t>(count);
}

// Whatever of a file was not synced may be on the disk, or not: this promises nothing more.
int SimulatedDisk::start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes) {
    const std::string what = std::to_string(fd) + " " + std::to_string(offset);
    return begin("start_writeback", what + " " + std::to_string(bytes));
}

int SimulatedDisk::sync(int fd) {
    if (const int error = begin("sync", std::to_string(fd))) return error;
    if (!syncs_files) return 0;
    const Inode inode = open_.at(fd).inode;
    durable_.contents[inode] = now_.contents[inode];
    pending_contents_.erase(inode);
    changed();
    return 0;
}

int SimulatedDisk::close(int fd) {
    const int error = begin("close", std::to_string(fd));
    open_.erase(fd);  // also when it fails, as on Linux
    if (const auto lock = locks_.find(fd); lock != locks_.end()) {
        locked_.erase(lock->second);
        locks_.erase(lock);
    }
    return error;
}

int SimulatedDisk::rename(Path from, Path to) {
    if (const int error = begin("rename", from)) return error;
    const auto found = now_.names.find(from);
    if (found == now_.names.end()) return -ENOENT;
    change_names({directory_of(to), from, to, found->second});
    return 0;
}

int SimulatedDisk::remove(Path path) {
    if (const int error = begin("remove", path)) return error;
    if (!now_.names.contains(path)) return -ENOENT;
    change_names({directory_of(path), path, "", 0});
    return 0;
}

int SimulatedDisk::make_directory(Path path) {
    if (const int error = begin("make_directory", path)) return error;
    if (now_.directories.contains(path)) return -EEXIST;
    if (!now_.directories.contains(directory_of(path))) return -ENOENT;
    change_names({directory_of(path), "", path, 0, true});
    return 0;
}

int SimulatedDisk::sync_directory(Path path) {
    if (const int error = begin("sync_directory", path)) return error;
    if (!now_.directories.contains(path)) return -ENOENT;
    if (!syncs_directories) return 0;
    std::erase_if(pending_names_, [&](const NameChange& change) {
        if (change.directory != path) return false;
        apply(change, durable_);
        return true;
    });
    changed();
    return 0;
}

int SimulatedDisk::list(Path path, std::vector<std::string>& names) {
    if (const int error = begin("list", path)) return error;
    if (!now_.directories.contains(path)) return -ENOENT;
    for (const auto& [name, inode] : now_.names) {
        if (directory_of(name) == path) names.push_back(std::filesystem::path(name).filename());
    }
    return 0;
}

int SimulatedDisk::lock_directory(Path path) {
    if (const int error = begin("lock_directory", path)) return error;
    if (!locked_.insert(path).second) return -EWOULDBLOCK;
    const int fd = next_descriptor_++;
    open_[fd] = {0};
    locks_[fd] = path;
    return fd;
}

}  // namespace ddp::checkpoint_test
