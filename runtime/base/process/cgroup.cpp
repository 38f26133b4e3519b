#include "base/process/cgroup.hpp"

#include "base/process/process_tree.hpp"

#include <algorithm>
#include <cstddef>

namespace ddp::base {
namespace {

// Of a list of groups, with long names.
constexpr std::size_t most_bytes = 16384;

bool names(std::string_view controllers, std::string_view controller) {
    while (!controllers.empty()) {
        const std::size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == controller) return true;
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

CgroupFolders upwards(const std::string& mount, std::string_view path) {
    CgroupFolders folders;
    while (path.size() > 1) {
        folders.push_back(mount + std::string(path));
        path = path.substr(0, path.rfind('/'));
    }
    folders.push_back(mount);
    return folders;
}

}  // namespace

std::vector<CgroupFolders> cgroups_of(std::string_view process, std::string_view controller,
                                      const std::string& root) {
    const std::string list =
        read_small_file(root + "/proc/" + std::string(process) + "/cgroup", most_bytes);
    const std::string mounts = root + "/sys/fs/cgroup";
    std::vector<CgroupFolders> found;
    std::string_view unified;
    for (std::string_view rest = list; !rest.empty();) {  // "9:cpu,cpuacct:/a/b", "0::/a"
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::size_t first = line.find(':');
        const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
        if (second == line.npos || !line.substr(second + 1).starts_with('/')) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const std::string_view path = line.substr(second + 1);
        if (controllers.empty()) {
            unified = path;
        } else if (names(controllers, controller)) {
            found.push_back(upwards(mounts + "/" + std::string(controller), path));
        }
    }
    if (unified.empty()) return found;
    found.push_back(upwards(mounts, unified));
    found.push_back(upwards(mounts + "/unified", unified));
    return found;
}

}  // namespace ddp::base
