// The object that stands in the page of --report (report_page.hpp), read as its script does.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launcher::testing {

inline nlohmann::json object_of(const std::string& page) {
    constexpr std::string_view begin = "id=\"data\">";
    const std::size_t from = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

}  // namespace ddp::launcher::testing
