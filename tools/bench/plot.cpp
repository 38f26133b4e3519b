// Two panels, both axes logarithmic; the axes span whole decades (bytes: powers of four).
#include "bench/plot.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

namespace ddp::bench {
namespace {

constexpr double width = 760;
constexpr double panel_height = 300;
constexpr double left = 80;
constexpr double right = 20;
constexpr double top = 60;
constexpr double gap = 60;

struct Axis {
    double low = 0;  // in steps of `base`
    double high = 1;
    double base = 10;
    double from = 0;  // pixels
    double to = 0;

    double at(double value) const {
        const double share = (std::log(value) / std::log(base) - low) / (high - low);
        return from + share * (to - from);
    }
};

Axis make_axis(const std::vector<double>& values, double base, double from, double to) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    Axis axis{0, 1, base, from, to};
    axis.low = std::floor(std::log(*low) / std::log(base) + 1e-9);
    axis.high = std::max(axis.low + 1, std::ceil(std::log(*high) / std::log(base) - 1e-9));
    return axis;
}

std::string format_bytes(double bytes) {
    constexpr const char* units[] = {"", "K", "M", "G"};
    std::size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
    std::ostringstream text;
    text << bytes << units[unit];
    return text.str();
}

std::string format_decade(double value) {
    std::ostringstream text;
    text << value;
    return text.str();
}

std::string escape(const std::string& text) {
    std::string safe;
    for (const char c : text) {
        if (c == '<')
            safe += "&lt;";
        else if (c == '&')
            safe += "&amp;";
        else
            safe += c;
    }
    return safe;
}

void put_text(std::ostream& svg, double x, double y, const char* anchor, const std::string& text) {
    svg << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">"
        << escape(text) << "</text>\n";
}

void put_line(std::ostream& svg, double x1, double y1, double x2, double y2) {
    svg << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2
        << "\" stroke=\"#ddd\"/>\n";
}

void put_axes(std::ostream& svg, const Axis& x, const Axis& y, const std::string& title) {
    for (double step = x.low; step <= x.high; ++step) {
        const double bytes = std::pow(x.base, step);
        put_line(svg, x.at(bytes), y.from, x.at(bytes), y.to);
        put_text(svg, x.at(bytes), y.from + 18, "middle", format_bytes(bytes));
    }
    for (double step = y.low; step <= y.high; ++step) {
        const double value = std::pow(y.base, step);
        put_line(svg, x.from, y.at(value), x.to, y.at(value));
        put_text(svg, x.from - 8, y.at(value) + 4, "end", format_decade(value));
    }
    put_text(svg, x.from, y.to - 10, "start", title);
    put_text(svg, x.to, y.from + 36, "end", "bytes");
}

void put_panel(std::ostream& svg, double panel_top, const std::string& title,
               const std::vector<double>& bytes, const std::vector<double>& values) {
    const Axis x = make_axis(bytes, 4, left, width - right);
    const Axis y = make_axis(values, 10, panel_top + panel_height, panel_top);
    put_axes(svg, x, y, title);
    svg << "<polyline fill=\"none\" stroke=\"#1f6fb4\" stroke-width=\"2\" points=\"";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        svg << x.at(bytes[i]) << ',' << y.at(values[i]) << ' ';
    }
    svg << "\"/>\n";
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        svg << "<circle cx=\"" << x.at(bytes[i]) << "\" cy=\"" << y.at(values[i])
            << "\" r=\"3\" fill=\"#1f6fb4\"/>\n";
    }
}

}  // namespace

void write_plot(const Options& options, const Report& report) {
    std::vector<double> bytes;
    std::vector<double> bandwidths;
    std::vector<double> times;
    for (const Row& row : report.rows()) {
        if (row.bytes == 0 || !(row.time_us > 0) || !(report.busbw_gbs(row) > 0)) continue;
        bytes.push_back(static_cast<double>(row.bytes));
        bandwidths.push_back(report.busbw_gbs(row));
        times.push_back(row.time_us);
    }
    constexpr double height = top + 2 * panel_height + gap + 60;
    std::ofstream svg(options.plot);
    svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << height
        << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    svg << "<title>" << escape(report.title()) << "</title>\n";
    put_text(svg, left, 24, "start", report.title());
    if (bytes.empty()) {
        put_text(svg, left, top + 20, "start", "no rows with bytes");
    } else {
        put_panel(svg, top, "bus bandwidth (GB/s)", bytes, bandwidths);
        put_panel(svg, top + panel_height + gap, "time (us)", bytes, times);
    }
    svg << "</svg>\n" << std::flush;
    if (!svg) throw SystemError("--plot: cannot write " + options.plot, errno);
}

}  // namespace ddp::bench
