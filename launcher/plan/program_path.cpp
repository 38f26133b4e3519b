// Looks as execvp() would, but says what is wrong and what was probably meant. What happens between
// this look and the exec is caught at the exec.
#include "launcher/plan/program_path.hpp"

#include "contract/exit_code.hpp"
#include "launcher/options/did_you_mean.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace ddp::launcher {
namespace {

namespace fs = std::filesystem;

enum class Kind { absent, folder, not_executable, executable };

Kind kind_of(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return Kind::absent;
    if (S_ISDIR(status.st_mode)) return Kind::folder;
    return ::access(path.c_str(), X_OK) == 0 ? Kind::executable : Kind::not_executable;
}

std::vector<std::string> folders_of(const std::string& search_path) {
    std::vector<std::string> folders;
    std::size_t start = 0;
    while (start <= search_path.size()) {
        const std::size_t end = std::min(search_path.find(':', start), search_path.size());
        // An empty entry means the current folder, as for every shell.
        folders.push_back(end == start ? "." : search_path.substr(start, end - start));
        start = end + 1;
    }
    return folders;
}

// Names of files in a folder, as the user would type them: with `prefix` before each.
void add_names(std::vector<std::string>& names, const std::string& folder,
               const std::string& prefix) {
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const fs::path& path = entry->path();
        if (kind_of(path.string()) == Kind::executable) {
            names.push_back(prefix + path.filename().string());
        }
    }
}

void add_scripts(std::vector<std::string>& names, const std::string& folder) {
    std::error_code failed;
    const std::string where = folder.empty() ? "." : folder;
    for (fs::directory_iterator entry(where, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        if (name.ends_with(".py")) names.push_back(folder + name);
    }
}

std::optional<std::string> suggestion(const std::string& name, const std::string& search_path) {
    const std::size_t slash = name.rfind('/');
    std::vector<std::string> names;
    if (slash != name.npos) {
        const std::string folder = name.substr(0, slash + 1);
        add_names(names, folder, folder);
        return did_you_mean(name, names);
    }
    const Kind here = kind_of("./" + name);
    if (here == Kind::executable || here == Kind::not_executable) return "./" + name;
    for (const std::string& folder : folders_of(search_path)) add_names(names, folder, "");
    if (auto on_path = did_you_mean(name, names)) return on_path;
    names.clear();
    add_names(names, ".", "./");
    return did_you_mean("./" + name, names);
}

bool starts_with_hash_bang(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    char start[2] = {};
    return file.read(start, sizeof start) && start[0] == '#' && start[1] == '!';
}

Program not_executable(const std::string& path) {
    const std::string cure = starts_with_hash_bang(path) ? "a script without the x bit: chmod +x "
                                                         : "if it is a program, chmod +x ";
    return {path, path + " is not executable; " + cure + path, contract::exit_not_executable};
}

Program problem_at(const std::string& path, Kind kind) {
    if (kind == Kind::folder) {
        return {path, path + " is a folder, not a program", contract::exit_not_executable};
    }
    return not_executable(path);
}

}  // namespace

Program find_program(const std::string& name, const std::string& search_path) {
    const bool as_is = name.find('/') != name.npos;
    std::optional<Program> unusable;
    if (as_is) {
        const Kind kind = kind_of(name);
        if (kind == Kind::executable) return {name, "", contract::exit_ok};
        if (kind != Kind::absent) return problem_at(name, kind);
    } else if (!name.empty()) {
        for (const std::string& folder : folders_of(search_path)) {
            const std::string path = folder + "/" + name;
            const Kind kind = kind_of(path);
            if (kind == Kind::executable) return {path, "", contract::exit_ok};
            if (kind == Kind::not_executable && !unusable) unusable = not_executable(path);
        }
    }
    if (unusable) return *unusable;
    const auto near = suggestion(name, search_path);
    return {"",
            "program \"" + name + "\" not found" + (as_is ? "" : " in PATH") +
                (near ? "; did you mean " + *near + "?" : ""),
            contract::exit_not_found};
}

Program find_script(const std::string& name) {
    if (::access(name.c_str(), R_OK) == 0) return {name, "", contract::exit_ok};
    if (kind_of(name) != Kind::absent) {
        return {name, "script " + name + " cannot be read; look at its permissions",
                contract::exit_not_executable};
    }
    std::vector<std::string> names;
    const std::size_t slash = name.rfind('/');
    const std::string folder = slash == name.npos ? "" : name.substr(0, slash + 1);
    add_scripts(names, folder);
    const auto near = did_you_mean(name, names);
    return {"", "script \"" + name + "\" not found" + (near ? "; did you mean " + *near + "?" : ""),
            contract::exit_not_found};
}

}  // namespace ddp::launcher
