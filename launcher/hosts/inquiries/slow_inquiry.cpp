#include "launcher/hosts/inquiries/slow_inquiry.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddp::launcher {

void SlowInquiry::begin_round(const RoundMessage& round) {
    round_ = round;
    told_.clear();
    news_ = SlowNews();
    loss_ = LossNews();
}

void SlowInquiry::note(Time now, MemberId by, PacesMessage message) {
    const HostRanks* const host = round_.table.find(by);
    if (host == nullptr || message.round != round_.round) return;
    std::erase_if(message.paces.ranks, [&](const RankPace& pace) { return !host->has(pace.rank); });
    for (RankPace& pace : message.paces.ranks) pace.host = host->host;
    if (told_.empty()) first_told_ = now;
    told_.insert_or_assign(by, std::move(message.paces));
}

SlowInquiry::News SlowInquiry::take_news(Time now) {
    const bool all_have_told = told_.size() == round_.table.hosts.size();
    if (told_.empty() || (!all_have_told && now - first_told_ < longest_wait)) return {};
    Paces all;
    News news;
    for (const HostRanks& host : round_.table.hosts) {  // by rank: places in the table are
        const auto told = told_.find(host.member);
        if (told == told_.end()) continue;
        all.time = std::max(all.time, told->second.time);
        for (RankPace& pace : told->second.ranks) all.ranks.push_back(std::move(pace));
        if (!told->second.tcp) continue;
        if (auto text =
                loss_.consider(host.member, host.host, told->second.time, *told->second.tcp)) {
            news.texts.push_back(*std::move(text));
            news.concerned.push_back(host.member);
        }
    }
    told_.clear();
    const std::vector<int> before = facts() ? facts()->ranks : std::vector<int>{};
    const auto use_of = [&](int rank) {
        const auto pace = std::ranges::lower_bound(all.ranks, rank, {}, &RankPace::rank);
        return pace == all.ranks.end() || pace->rank != rank ? std::nullopt : pace->use;
    };
    std::ranges::move(news_.consider(all, use_of), std::back_inserter(news.texts));
    for (const std::vector<int>& ranks : {before, facts() ? facts()->ranks : std::vector<int>{}}) {
        for (const int rank : ranks) {
            const HostRanks* const host = round_.table.host_of(rank);
            if (host != nullptr) news.concerned.push_back(host->member);
        }
    }
    return news;
}

}  // namespace ddp::launcher
