// The names of devices, which there are, and a thread's default.
#include <ddp/device.hpp>

#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <ostream>

namespace ddp {
namespace {

constexpr const char* cpu_devices_variable = "DDP_CPU_DEVICES";
constexpr int most_cpu_devices = 64;  // each has a thread at work in DataParallel
constexpr int most_index = 9999;      // more are a slip of the pen

thread_local Device current_device;
constinit std::atomic<int> gpu_of_rank{0};

// What "cuda" means: the innermost scope's GPU, or else the rank's.
int current_gpu() {
    return current_device.type == DeviceType::cuda ? current_device.index : gpu_of_rank.load();
}

std::optional<int> number_of(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    return whole ? std::optional(value) : std::nullopt;
}

std::optional<Device> parse_strictly(std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view type = text.substr(0, colon);
    if (type != "cpu" && type != "cuda") return std::nullopt;
    Device device{type == "cpu" ? DeviceType::cpu : DeviceType::cuda, 0};
    if (colon == std::string_view::npos) {
        if (device.type == DeviceType::cuda) device.index = current_gpu();
        return device;
    }
    const std::string_view digits = text.substr(colon + 1);
    const auto index = number_of(digits);
    const bool plain = digits.size() == 1 || !digits.starts_with('0');
    if (!index || *index < 0 || *index > most_index || !plain) return std::nullopt;
    device.index = *index;
    return device;
}

// What the text may be meant to say: without blanks and capitals, `gpu` as CUDA calls it, the
// number after one colon and without leading zeros.
std::optional<Device> guess(std::string_view text) {
    std::string type;
    std::string digits;
    bool colon = false;
    for (const char symbol : text) {
        const auto code = static_cast<unsigned char>(symbol);
        if (std::isspace(code) != 0) continue;
        if (std::isdigit(code) != 0) {
            digits += symbol;
        } else if (std::isalpha(code) != 0 && digits.empty() && !colon) {
            type += static_cast<char>(std::tolower(code));
        } else if (symbol == ':' && digits.empty()) {
            colon = true;
        } else {
            return std::nullopt;
        }
    }
    if (type == "gpu") type = "cuda";
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.empty()) digits = "0";
    return parse_strictly(type + ":" + digits);
}

// As DDP_CPU_DEVICES says; nothing when it is not set, or empty.
std::optional<int> cpu_devices_wanted() {
    const char* const value = std::getenv(cpu_devices_variable);
    if (value == nullptr || *value == '\0') return std::nullopt;
    const auto count = number_of(value);
    if (!count || *count < 1 || *count > most_cpu_devices) {
        throw UsageError(std::string(cpu_devices_variable) + "=" + value +
                         ": not a number of CPU devices; 1 to " + std::to_string(most_cpu_devices) +
                         ", or leave it unset for one");
    }
    return count;
}

}  // namespace

Device Device::parse(std::string_view text) {
    if (const auto device = parse_strictly(text)) return *device;
    std::string message = "device \"" + std::string(text) + "\": ";
    if (const auto meant = guess(text)) {
        message += "did you mean " + to_string(*meant) + "?";
    } else {
        message += "no such name; devices are cpu, cpu:1, cuda:0, cuda:1 and so on, up to " +
                   std::to_string(most_index);
    }
    throw UsageError(message);
}

std::string to_string(const Device& device) {
    std::string type;
    switch (device.type) {
        case DeviceType::cpu:
            if (device.index == 0) return "cpu";
            type = "cpu:";
            break;
        case DeviceType::cuda:
            type = "cuda:";
            break;
    }
    return type + std::to_string(device.index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
    return out << to_string(device);
}

int device_count(DeviceType type) {
    switch (type) {
        case DeviceType::cpu:
            return cpu_devices_wanted().value_or(1);
        case DeviceType::cuda:
            break;
    }
    return device::device_api().probe().devices;
}

int device_count() { return static_cast<int>(devices().size()); }

std::vector<Device> devices(DeviceType type) {
    std::vector<Device> all;
    const int count = device_count(type);
    all.reserve(static_cast<std::size_t>(count));
    for (int index = 0; index < count; ++index) all.push_back({type, index});
    return all;
}

std::vector<Device> devices() {
    if (!cpu_devices_wanted() && is_available()) return devices(DeviceType::cuda);
    return devices(DeviceType::cpu);
}

bool is_available() { return device_count(DeviceType::cuda) > 0; }

Device device::cpu_of_rank(int local_rank) {
    return {DeviceType::cpu, local_rank % device_count(DeviceType::cpu)};
}

void device::set_gpu_of_rank(int index) noexcept { gpu_of_rank.store(index); }

void device::require_known(const Device& device) {
    if (device == Device{}) return;
    const std::string tried = "device " + to_string(device) + ": ";
    const auto probe = device.type == DeviceType::cuda ? device_api().probe() : Probe{};
    const int count =
        device.type == DeviceType::cuda ? probe.devices : device_count(DeviceType::cpu);
    if (device.index >= 0 && device.index < count) return;
    const std::string first = device.type == DeviceType::cuda ? "cuda:0" : "cpu";
    if (count == 0) {
        throw UsageError(tried + "this process sees no GPU (" + probe.reason + "); use the CPU: " +
                         cpu_devices_variable + "=4 gives four devices, cpu:0 to cpu:3");
    }
    const std::string there =
        count == 1 ? "there is " + first + " alone"
                   : "there are " + first + " to " + to_string(Device{device.type, count - 1});
    const std::string cure =
        device.type == DeviceType::cpu
            ? "; " + std::string(cpu_devices_variable) + " sets how many there are"
            : "; CUDA_VISIBLE_DEVICES says which GPUs a process sees, and numbers them from 0";
    throw UsageError(tried + there + cure);
}

DeviceScope::DeviceScope(const Device& device) : before_(current_device) {
    device::require_known(device);
    if (device.type == DeviceType::cuda) {
        device::DeviceApi& api = device::device_api();
        gpu_before_ = api.current();
        api.use(device.index);
    }
    current_device = device;
}

DeviceScope::~DeviceScope() {
    current_device = before_;
    if (gpu_before_ < 0) return;
    try {
        device::DeviceApi& api = device::device_api();
        if (api.has_context(gpu_before_)) api.use(gpu_before_);
    } catch (const Error&) {  // it was current, so the GPU is lost: the next call says so
    }
}

Device DeviceScope::current() noexcept { return current_device; }

}  // namespace ddp
