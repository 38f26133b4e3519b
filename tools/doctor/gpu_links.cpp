// How this host's GPUs are connected, by what "nvidia-smi topo -m" shows.
#include <algorithm>
#include <map>
#include <sstream>

#include "base/printable.hpp"
#include "doctor/checks.hpp"

namespace ddp::doctor {
namespace {

using Row = std::vector<std::string>;

// Without what makes a terminal underline it.
std::string without_escapes(const std::string& line) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] != '\033') {
            text += line[i];
            continue;
        }
        while (i < line.size() && line[i] != 'm') ++i;
    }
    return text;
}

Row cells_of(const std::string& line) {
    Row cells;
    std::istringstream text(without_escapes(line));
    for (std::string cell; std::getline(text, cell, '\t');) {
        const std::size_t begin = cell.find_first_not_of(' ');
        const std::size_t end = cell.find_last_not_of(" \r");
        cells.push_back(begin == cell.npos ? "" : cell.substr(begin, end - begin + 1));
    }
    return cells;
}

// "GPU7", not "GPU NUMA ID".
bool is_gpu(const std::string& cell) {
    return cell.size() > 3 && cell.starts_with("GPU") &&
           std::all_of(cell.begin() + 3, cell.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What data pass between two GPUs, from near to far.
enum class Way : std::uint8_t { nvlink, pci, host_bridge, sockets, unknown };
Way way_of(const std::string& cell) {
    if (cell.starts_with("NV")) return Way::nvlink;
    if (cell == "PIX" || cell == "PXB") return Way::pci;
    if (cell == "PHB" || cell == "NODE") return Way::host_bridge;
    if (cell == "SYS") return Way::sockets;
    return Way::unknown;
}
const char* words_of(Way way) {
    switch (way) {
        case Way::nvlink:
            return "NVLink";
        case Way::pci:
            return "PCIe switches";
        case Way::host_bridge:
            return "a processor's PCIe";
        case Way::sockets:
            return "the link between processors (SYS)";
        case Way::unknown:
            break;
    }
    return "an unknown way";
}

struct Pairs {
    int count = 0;
    std::string first;  // "0 and 4"
    std::string cell;
};

}  // namespace

Findings judge_gpu_links(const std::string& topology) {
    std::istringstream lines(topology);
    Row header;
    std::map<Way, Pairs> ways;
    int gpus = 0;
    for (std::string line; std::getline(lines, line);) {
        const Row cells = cells_of(line);
        if (header.empty()) {
            if (std::ranges::count_if(cells, is_gpu) > 0 && !is_gpu(cells.front())) header = cells;
            continue;
        }
        if (cells.empty() || !is_gpu(cells.front())) continue;
        ++gpus;
        for (std::size_t i = 1; i < std::min(cells.size(), header.size()); ++i) {
            // Each pair once.
            if (!is_gpu(header[i]) || cells[i] == "X") continue;
            const std::string one = cells.front().substr(3);
            const std::string other = header[i].substr(3);
            if (one.size() > other.size() || (one.size() == other.size() && one >= other)) continue;
            Pairs& pairs = ways[way_of(cells[i])];
            if (pairs.count++ == 0) pairs = {1, one + " and " + other, cells[i]};
        }
    }
    if (ways.empty()) {
        if (gpus == 1) return {};
        return {
            {"GPU links", Level::note, "nvidia-smi topo -m does not show how GPUs are connected"}};
    }
    if (ways.size() == 1 && ways.begin()->first != Way::unknown) {
        const auto& [way, pairs] = *ways.begin();
        const bool is_far = way == Way::sockets;
        return {{"GPU links", is_far ? Level::note : Level::ok,
                 std::to_string(gpus) + " GPUs, each two by " + words_of(way) +
                     (way == Way::nvlink ? " (" + base::printable(pairs.cell, 16) + ")" : ""),
                 is_far ? "collectives are as slow as that link" : ""}};
    }
    std::string says = std::to_string(gpus) + " GPUs:";
    for (const auto& [way, pairs] : ways) {
        says += (says.back() == ':' ? " " : ", ") + std::to_string(pairs.count) +
                (pairs.count == 1 ? " pair by " : " pairs by ") + words_of(way) + " (such as " +
                pairs.first + ")";
    }
    return {{"GPU links", Level::note, says,
             "the slowest of a ring decides: jobs of fewer GPUs run on close ones, by "
             "CUDA_VISIBLE_DEVICES"}};
}

}  // namespace ddp::doctor
