#include "explorer/memory.hpp"

#include <algorithm>
#include <stdexcept>

namespace explorer {
namespace {

bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_consume ||
           order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

template <class Array>
void take_larger(Array& into, const Array& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

void View::join(const View& other) {
    take_larger(seen, other.seen);
    take_larger(clock, other.clock);
}

void View::join_seen(const View& other) { take_larger(seen, other.seen); }

void Memory::clear() {
    locations_.clear();
    plains_.clear();
    threads_ = {};
    for (std::size_t thread = 0; thread < max_threads; ++thread) {
        threads_[thread].current.clock[thread] = 1;
    }
    sequential_ = heavy_ = asymmetric_ = {};
}

std::size_t Memory::add_location(std::uint64_t value) {
    if (locations_.size() == max_locations) throw std::length_error("explorer: too many atomics");
    locations_.push_back({{Message{value, {}, false}}, {}});
    return locations_.size() - 1;
}

std::size_t Memory::add_plain(std::uint64_t value) {
    plains_.push_back({});
    plains_.back().value = value;
    return plains_.size() - 1;
}

std::size_t Memory::oldest_readable(std::size_t thread, std::size_t location,
                                    std::memory_order order) const {
    const std::size_t own = threads_[thread].current.seen[location];
    if (order != std::memory_order_seq_cst) return own;
    return std::max<std::size_t>(own, sequential_.seen[location]);
}

void Memory::note_read(std::size_t thread, std::size_t location, std::size_t index,
                       std::memory_order order) {
    ThreadViews& views = threads_[thread];
    const View& message = locations_[location].messages[index].view;
    const auto seen = static_cast<std::uint16_t>(index);
    views.current.seen[location] = std::max(views.current.seen[location], seen);
    if (acquires(order)) views.current.join(message);
    views.acquired.join(message);
    views.acquired.join(views.current);
    if (order == std::memory_order_seq_cst) {
        sequential_.seen[location] = std::max(sequential_.seen[location], seen);
    }
}

std::uint64_t Memory::load(std::size_t thread, std::size_t location, std::memory_order order,
                           const Choose& choose) {
    const std::vector<Message>& messages = locations_[location].messages;
    const std::size_t oldest = oldest_readable(thread, location, order);
    // The latest first: the search then begins with the sequentially consistent runs.
    const std::size_t index = messages.size() - 1 - choose(messages.size() - oldest);
    note_read(thread, location, index, order);
    return messages[index].value;
}

template <class Visit>
void Memory::visit_views(const Visit& visit) {
    for (ThreadViews& views : threads_) {
        visit(views.current);
        visit(views.acquired);
        visit(views.released);
    }
    for (View* view : {&sequential_, &heavy_, &asymmetric_}) visit(*view);
    for (Location& location : locations_) {
        visit(location.kernel_lock);
        for (Message& message : location.messages) visit(message.view);
    }
}

void Memory::insert(std::size_t thread, std::size_t location, std::size_t index,
                    std::uint64_t value, std::memory_order order, const View* read) {
    std::vector<Message>& messages = locations_[location].messages;
    if (index < messages.size()) {
        visit_views([&](View& view) { view.seen[location] += view.seen[location] >= index; });
    }
    ThreadViews& views = threads_[thread];
    const auto seen = static_cast<std::uint16_t>(index);
    views.current.seen[location] = seen;
    views.acquired.seen[location] = std::max(views.acquired.seen[location], seen);
    Message message{value, releases(order) ? views.current : views.released, read != nullptr};
    message.view.seen[location] = std::max(message.view.seen[location], seen);
    if (read != nullptr) message.view.join(*read);  // a release sequence goes on
    messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(index), message);
    if (order == std::memory_order_seq_cst) sequential_.seen[location] = seen;
    // What this thread does from here on is not what it released.
    ++views.current.clock[thread];
    views.acquired.clock[thread] = views.current.clock[thread];
}

void Memory::store(std::size_t thread, std::size_t location, std::uint64_t value,
                   std::memory_order order, const Choose& choose) {
    const std::vector<Message>& messages = locations_[location].messages;
    std::vector<std::size_t> places{messages.size()};  // before the message of that index
    for (std::size_t after = messages.size() - 1; after > oldest_readable(thread, location, order);
         --after) {
        if (!messages[after].is_attached) places.push_back(after);
    }
    insert(thread, location, places[choose(places.size())], value, order, nullptr);
}

std::uint64_t Memory::read_modify_write(std::size_t thread, std::size_t location,
                                        const Update& update, Orders orders, const Choose& choose) {
    const std::vector<Message>& messages = locations_[location].messages;
    const std::size_t oldest = oldest_readable(thread, location, orders.success);
    std::vector<std::size_t> reads;
    for (std::size_t index = messages.size(); index-- > oldest;) {
        std::uint64_t value = messages[index].value;
        const bool is_taken = index + 1 < messages.size() && messages[index + 1].is_attached;
        if (!is_taken || !update(value)) reads.push_back(index);
    }
    const std::size_t index = reads[choose(reads.size())];
    const std::uint64_t before = messages[index].value;
    std::uint64_t value = before;
    const bool writes = update(value);
    note_read(thread, location, index, writes ? orders.success : orders.failure);
    if (writes) {
        const View read = messages[index].view;
        insert(thread, location, index + 1, value, orders.success, &read);
    }
    return before;
}

void Memory::fence(std::size_t thread, std::memory_order order) {
    ThreadViews& views = threads_[thread];
    if (acquires(order)) views.current.join(views.acquired);
    if (order == std::memory_order_seq_cst) {
        views.current.join_seen(sequential_);
        sequential_.join_seen(views.current);
        views.acquired.join(views.current);
    }
    if (releases(order)) {
        views.released = views.current;
        ++views.current.clock[thread];
        views.acquired.clock[thread] = views.current.clock[thread];
    }
}

void Memory::light_fence(std::size_t thread) {
    ThreadViews& views = threads_[thread];
    views.current.join_seen(heavy_);
    views.acquired.join_seen(heavy_);
    asymmetric_.join_seen(views.current);
}

void Memory::heavy_fence(std::size_t thread) {
    ThreadViews& views = threads_[thread];
    views.current.join_seen(asymmetric_);
    views.acquired.join_seen(asymmetric_);
    heavy_.join_seen(views.current);
    asymmetric_.join_seen(views.current);
}

void Memory::enter_kernel(std::size_t thread, std::size_t location) {
    threads_[thread].current.join_seen(locations_[location].kernel_lock);
    threads_[thread].acquired.join_seen(locations_[location].kernel_lock);
}

void Memory::leave_kernel(std::size_t thread, std::size_t location) {
    locations_[location].kernel_lock.join_seen(threads_[thread].current);
}

bool Memory::read_plain(std::size_t thread, std::size_t plain, std::uint64_t& value) {
    Plain& here = plains_[plain];
    const View& view = threads_[thread].current;
    value = here.value;
    here.read_at[thread] = view.clock[thread];
    return here.written == 0 || view.clock[here.writer] >= here.written;
}

bool Memory::write_plain(std::size_t thread, std::size_t plain, std::uint64_t value) {
    Plain& here = plains_[plain];
    const View& view = threads_[thread].current;
    bool is_ordered = here.written == 0 || view.clock[here.writer] >= here.written;
    for (std::size_t other = 0; other < max_threads; ++other) {
        is_ordered = is_ordered && view.clock[other] >= here.read_at[other];
    }
    here = {value, thread, view.clock[thread], {}};
    return is_ordered;
}

bool Memory::sees_latest(std::size_t thread, std::size_t location) const {
    return threads_[thread].current.seen[location] + 1U == messages(location);
}

std::uint64_t Memory::digest(std::span<const std::size_t> running) const {
    std::array<std::uint16_t, max_locations> base{};
    for (std::size_t location = 0; location < locations_.size(); ++location) {
        base[location] = static_cast<std::uint16_t>(messages(location) - 1);
        for (const std::size_t thread : running) {
            base[location] = std::min(base[location], threads_[thread].current.seen[location]);
        }
    }
    std::uint64_t hash = 0;
    const auto add = [&](const View& view) {
        for (std::size_t location = 0; location < locations_.size(); ++location) {
            const std::uint16_t least = base[location];
            hash =
                mix(hash, static_cast<std::uint64_t>(std::max(view.seen[location], least) - least));
        }
        for (const std::size_t thread : running) {
            hash = mix(hash, view.clock[thread]);
        }
    };
    for (std::size_t location = 0; location < locations_.size(); ++location) {
        const std::vector<Message>& messages = locations_[location].messages;
        hash = mix(hash, messages.size() - base[location]);
        for (std::size_t index = base[location]; index < messages.size(); ++index) {
            hash = mix(hash, messages[index].value * 2 + messages[index].is_attached);
            add(messages[index].view);
        }
        add(locations_[location].kernel_lock);
    }
    for (const std::size_t thread : running) {
        add(threads_[thread].current);
        add(threads_[thread].acquired);
        add(threads_[thread].released);
    }
    add(sequential_);
    add(heavy_);
    add(asymmetric_);
    for (const Plain& plain : plains_) {
        hash = mix(hash, plain.value);
        hash = mix(hash, plain.writer << 16 | plain.written);
        for (const std::size_t thread : running) {
            hash = mix(hash, plain.read_at[thread]);
        }
    }
    return hash;
}

}  // namespace explorer
