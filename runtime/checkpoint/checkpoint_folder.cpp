// Numbers only ever grow, so no file is written twice: an old checkpoint cannot be harmed by a new
// one. The manifest's rename is the moment at which a checkpoint begins to exist.
#include "checkpoint/checkpoint_folder.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.hpp"
#include "checkpoint/crc.hpp"
#include "checkpoint/formats/safetensors_file.hpp"
#include "checkpoint/staging.hpp"

namespace ddp::checkpoint {

namespace {

constexpr std::string_view prefix = "checkpoint-";
constexpr std::string_view manifest_suffix = ".manifest";
constexpr std::string_view tensors_suffix = ".safetensors";
// For a job that only reads, which holds the folder while it removes left-over files.
constexpr std::chrono::seconds lock_timeout{5};
constexpr std::chrono::milliseconds lock_poll{10};

enum class Kind { manifest, tensors, temporary };
struct FileName {
    std::uint64_t number;
    Kind kind;
};

// Nothing for files that are not ours.
std::optional<FileName> parse_name(std::string_view name) {
    if (!name.starts_with(prefix)) return std::nullopt;
    FileName parsed{};
    const auto [end, error] =
        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), parsed.number);
    if (error != std::errc{} || parsed.number == UINT64_MAX) return std::nullopt;
    // As we write it: another's may begin with zeros.
    const std::string_view digits{name.data() + prefix.size(), end};
    if (std::to_string(parsed.number) != digits) return std::nullopt;
    std::string_view suffix{end, static_cast<std::size_t>(name.data() + name.size() - end)};
    const bool temporary = suffix.ends_with(temporary_suffix);
    if (temporary) suffix.remove_suffix(std::strlen(temporary_suffix));
    if (suffix != manifest_suffix && suffix != tensors_suffix) return std::nullopt;
    parsed.kind = suffix == manifest_suffix ? Kind::manifest : Kind::tensors;
    if (temporary) parsed.kind = Kind::temporary;
    return parsed;
}

std::string describe(DType dtype, const Shape& shape) {
    return std::string(to_string(dtype)) + " " + to_string(shape);
}

// The entry of each tensor of `state`, in its order; throws when the two sets differ in anything.
std::vector<const TensorEntry*> match(const Header& header, const std::vector<NamedTensor>& state) {
    std::unordered_map<std::string_view, const TensorEntry*> by_name;
    for (const TensorEntry& entry : header.tensors) by_name.emplace(entry.name, &entry);
    std::vector<const TensorEntry*> entries;
    for (const auto& [name, tensor] : state) {
        const auto found = by_name.find(name);
        if (found == by_name.end()) throw CheckpointError("it has no tensor \"" + name + "\"");
        const TensorEntry& entry = *found->second;
        if (entry.dtype != tensor.dtype || entry.shape != tensor.shape) {
            throw CheckpointError("tensor \"" + name + "\" is " +
                                  describe(entry.dtype, entry.shape) + " there and " +
                                  describe(tensor.dtype, tensor.shape) + " in this program");
        }
        entries.push_back(&entry);
        by_name.erase(found);
    }
    for (const TensorEntry& entry : header.tensors) {
        if (!by_name.contains(entry.name)) continue;
        throw CheckpointError("it has a tensor \"" + entry.name + "\" that this program has not");
    }
    return entries;
}

std::vector<Found::Part> parts_of(const SafetensorsView& file,
                                  const std::vector<NamedTensor>& state) {
    const auto entries = match(file.header, state);
    std::vector<Found::Part> parts;
    for (std::size_t i = 0; i < state.size(); ++i) {
        parts.push_back({state[i].tensor, file.data.data() + entries[i]->begin});
    }
    return parts;
}

std::string cannot_be_used(const std::string& path, const std::string& why) {
    return "checkpoint: " + path + " cannot be used: " + why;
}

// A file was removed after it was listed.
class FileRemoved : public CheckpointError {
    using CheckpointError::CheckpointError;
};

// Whether the error is this process's or host's, whatever the file is like.
bool is_local_shortage(int code) { return code == EMFILE || code == ENFILE || code == ENOMEM; }

}  // namespace

void Found::copy() const {
    Staging staging;
    for (const Part& part : parts) staging.write(part.to, part.from);
}

std::string CheckpointFolder::manifest_name(std::uint64_t number) {
    return std::string(prefix) + std::to_string(number) + std::string(manifest_suffix);
}
std::string CheckpointFolder::tensors_name(std::uint64_t number) {
    return std::string(prefix) + std::to_string(number) + std::string(tensors_suffix);
}

CheckpointFolder::CheckpointFolder(Files& files, const std::filesystem::path& dir,
                                   std::size_t keep_last)
    : files_(files),
      // Without a slash at its end, which would hide the folder that it is in.
      dir_(dir.has_filename() || dir == dir.root_path() ? dir : dir.parent_path()),
      keep_last_(keep_last) {}

CheckpointFolder::~CheckpointFolder() {
    if (lock_ >= 0) files_.close(lock_);
}

void CheckpointFolder::write(const Progress& progress, const std::vector<NamedTensor>& state) {
    if (!writes_) {
        make_directories(files_, dir_);
        lock();
        clean();
        writes_ = true;
    }
    const std::uint64_t number = next_++;
    Manifest manifest{progress, tensors_name(number), 0, 0};
    const auto [bytes, crc] =
        write_safetensors(files_, path_of(manifest.file), state, {{"format", "ddp"}});
    manifest.bytes = bytes;
    manifest.crc = crc;
    try {
        const std::string text = encode(manifest);
        FileWriter writer{files_, path_of(manifest_name(number))};
        writer.write(std::as_bytes(std::span(text)));
        writer.commit();
    } catch (...) {
        files_.remove(path_of(manifest.file));
        throw;
    }
    keep_the_last();
}

std::optional<Progress> CheckpointFolder::read(const std::vector<NamedTensor>& state) {
    const auto found = find(state);
    if (!found) return std::nullopt;
    found->copy();
    return found->progress;
}

// A saver beside this may remove what has just been listed; then there is a newer one.
std::optional<Found> CheckpointFolder::find(const std::vector<NamedTensor>& state) {
    clean_unless_in_use();
    for (;;) {
        const auto numbers = scan();
        try {
            return find_among(numbers, state);
        } catch (const FileRemoved&) {  // NOLINT(bugprone-empty-catch): once more
        }
    }
}

std::optional<Found> CheckpointFolder::find_among(const std::set<std::uint64_t>& numbers,
                                                  const std::vector<NamedTensor>& state) {
    std::string newest_problem;
    bool all_are_damaged = true;
    for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
        const std::string path = path_of(tensors_name(*number));
        Loaded loaded;
        SafetensorsView view;
        try {
            loaded = load(*number);
            view = parse_safetensors(loaded.bytes.span());
        } catch (const CheckpointError& error) {
            const std::string problem = cannot_be_used(path, error.what());
            if (const auto* unread = dynamic_cast<const UnreadError*>(&error)) {
                if (unread->code() == ENOENT && scan() != numbers) throw FileRemoved(problem);
                if (is_local_shortage(unread->code())) throw CheckpointError(problem);
                all_are_damaged = false;
            }
            damaged_.insert(*number);
            if (newest_problem.empty()) newest_problem = problem;
            if (std::next(number) == numbers.rend()) break;
            base::log_warn("checkpoint", problem + "; trying the one before it");
            continue;
        }
        try {
            auto parts = parts_of(view, state);
            return Found{loaded.manifest.progress, std::move(loaded.bytes), std::move(parts)};
        } catch (const CheckpointError& error) {
            throw CheckpointError(cannot_be_used(path, error.what()));
        }
    }
    if (newest_problem.empty()) return std::nullopt;
    throw CheckpointError(
        newest_problem + "; nor can any older one in " + dir_ +
        (all_are_damaged ? "; to start anew, remove them or name another folder" : ""));
}

CheckpointFolder::Loaded CheckpointFolder::load(std::uint64_t number) const {
    Loaded loaded;
    try {
        const FileBytes text =
            read_file(files_, path_of(manifest_name(number)), max_manifest_bytes);
        loaded.manifest =
            decode_manifest({reinterpret_cast<const char*>(text.data.get()), text.size});
    } catch (const UnreadError& error) {
        throw UnreadError("reading its manifest " + manifest_name(number) + " failed",
                          error.code());
    } catch (const CheckpointError& error) {
        throw CheckpointError("its manifest " + manifest_name(number) + ": " + error.what());
    }
    if (loaded.manifest.file != tensors_name(number)) {
        throw CheckpointError("its manifest is of another file, " + loaded.manifest.file);
    }
    loaded.bytes = read_file(files_, path_of(loaded.manifest.file), loaded.manifest.bytes);
    if (loaded.bytes.size != loaded.manifest.bytes) {
        throw CheckpointError("it has " + std::to_string(loaded.bytes.size) + " bytes instead of " +
                              std::to_string(loaded.manifest.bytes));
    }
    if (crc32c(loaded.bytes.span()) != loaded.manifest.crc) {
        throw CheckpointError("its checksum is wrong: a bit has changed");
    }
    return loaded;
}

// The numbers with a manifest.
std::set<std::uint64_t> CheckpointFolder::scan(bool& left_overs) {
    std::vector<std::string> names;
    if (const int result = files_.list(dir_, names); result < 0 && result != -ENOENT) {
        throw CheckpointError("checkpoint: cannot list the folder " + dir_ + ": " +
                              errno_text(-result));
    }
    std::set<std::uint64_t> manifests;
    std::set<std::uint64_t> tensors;
    left_overs = false;
    for (const std::string& name : names) {
        const auto parsed = parse_name(name);
        if (!parsed) continue;
        next_ = std::max(next_, parsed->number + 1);
        if (parsed->kind == Kind::manifest) manifests.insert(parsed->number);
        if (parsed->kind == Kind::tensors) tensors.insert(parsed->number);
        left_overs |= parsed->kind == Kind::temporary;
    }
    left_overs |= !std::ranges::includes(manifests, tensors);
    return manifests;
}

std::set<std::uint64_t> CheckpointFolder::scan() {
    bool left_overs = false;
    return scan(left_overs);
}

void CheckpointFolder::lock() {
    if (lock_ >= 0) return;
    const auto deadline = std::chrono::steady_clock::now() + lock_timeout;
    while (true) {
        lock_ = files_.lock_directory(dir_);
        if (lock_ >= 0) return;
        if (lock_ == -ENOLCK || lock_ == -EOPNOTSUPP || lock_ == -ENOSYS) return;  // on trust
        if (lock_ != -EWOULDBLOCK) {
            throw CheckpointError("checkpoint: cannot lock the folder " + dir_ + ": " +
                                  errno_text(-lock_));
        }
        if (std::chrono::steady_clock::now() > deadline) {
            throw CheckpointError("checkpoint: another job writes to the folder " + dir_ +
                                  "; give each its own");
        }
        std::this_thread::sleep_for(lock_poll);
    }
}

// What a killed save has left. Only under the lock: it may be in the making otherwise.
void CheckpointFolder::clean() {
    const auto manifests = scan();
    std::vector<std::string> names;
    files_.list(dir_, names);
    for (const std::string& name : names) {
        const auto parsed = parse_name(name);
        if (!parsed) continue;
        const bool unfinished =
            parsed->kind == Kind::tensors && !manifests.contains(parsed->number);
        if (parsed->kind == Kind::temporary || unfinished) files_.remove(path_of(name));
    }
}

void CheckpointFolder::clean_unless_in_use() {
    bool left_overs = false;
    scan(left_overs);
    if (!left_overs || writes_) return;
    const int lock = files_.lock_directory(dir_);
    if (lock < 0) return;
    try {
        clean();
    } catch (...) {
        files_.close(lock);
        throw;
    }
    files_.close(lock);
}

// The manifest first: without it the tensors are no checkpoint.
void CheckpointFolder::remove(std::uint64_t number) {
    files_.remove(path_of(manifest_name(number)));
    files_.remove(path_of(tensors_name(number)));
}

void CheckpointFolder::keep_the_last() {
    std::set<std::uint64_t> numbers;
    try {
        numbers = scan();
    } catch (const CheckpointError& error) {
        return base::log_warn("checkpoint", error.what());  // the new one is safe all the same
    }
    std::size_t good = 0;
    for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
        if (good >= keep_last_)
            remove(*number);
        else
            good += damaged_.contains(*number) ? 0 : 1;
    }
}

}  // namespace ddp::checkpoint
