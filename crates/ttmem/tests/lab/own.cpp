// A program that links the runtime of a stock wheel and creates circular buffers through the wrappers.
//
// Wheels have the runtime's library, but only those headers that kernels need. So what is used is declared here, as in ttnn
// 0.76 and 0.81: functions by their names, objects by their maximum sizes.
#include <tt-metalium/buffer_types.hpp>  // the one header that wheels have
#include <ttmem/instrumented.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tt {

enum class DataFormat : std::uint8_t { Float16_b = 5 };

struct xy_pair {
    std::size_t x, y;
};

namespace tt_metal {

class CoreRange {
public:
    xy_pair start_coord, end_coord;
    CoreRange(const xy_pair& from, const xy_pair& to);
};

class CoreRangeSet {
public:
    CoreRangeSet(const CoreRange& range);
    CoreRangeSet(const CoreRangeSet& other);
    const std::vector<CoreRange>& ranges() const;

private:
    std::vector<CoreRange> ranges_;
};

class CircularBufferConfig {
public:
    CircularBufferConfig(std::uint32_t total_size, const std::map<std::uint8_t, DataFormat>& formats);
    CircularBufferConfig& set_page_size(std::uint8_t index, std::uint32_t page_size);
    std::uint32_t total_size() const;
    std::optional<std::uint32_t> globally_allocated_address() const;
    std::uint32_t address_offset() const;

private:
    // Some 10 KiB. Its memory is leaked: its destructor is in no library.
    alignas(16) unsigned char content_[64 << 10];
};

class Program {
public:
    Program();
    ~Program();
    std::uint64_t get_runtime_id() const;

private:
    void* content_[2];
};

std::uintptr_t CreateCircularBuffer(
    Program& program, const std::variant<xy_pair, CoreRange, CoreRangeSet>& cores, const CircularBufferConfig& config);

}  // namespace tt_metal

}  // namespace tt

using namespace tt::tt_metal;
using namespace ttmem::instrumented;

namespace {

struct Mesh {
    std::vector<int> get_device_ids() const { return {0, 1}; }
};

CircularBufferConfig configured(std::uint32_t size, std::uint8_t index) {
    CircularBufferConfig config(size, {{index, tt::DataFormat::Float16_b}});
    config.set_page_size(index, 2048);
    return config;
}

}  // namespace

int main() {
    ttmem::AllocationClient::report_allocation(0, 4096, BufferType::L1_SMALL, 0x1000);
    Program program;
    const ProgramScope followed(program);
    const OnDevice scope(Mesh{});
    const CoreRange cores({0, 0}, {3, 3});
    const auto first = CreateCircularBufferWithTracking(program, cores, configured(4096, 0));
    const auto second = CreateCircularBufferWithTracking(program, tt::xy_pair{5, 6}, configured(2048, 1));
    const auto third = CreateCircularBufferWithTracking(program, CoreRangeSet(cores), configured(8192, 2));
    std::string thrown;
    try {
        // The runtime refuses a second buffer with the same index on the same cores.
        CreateCircularBufferWithTracking(program, cores, configured(2048, 0));
    } catch (const std::exception& exception) {
        thrown = exception.what();
    }
    const auto tally = counts();
    std::printf("own: %d %d %d %d\n", first != 0 && second != first && third != second, static_cast<int>(tally.tracked),
                static_cast<int>(tally.failed), static_cast<int>(thrown.find("TT_") != std::string::npos));
    std::fflush(stdout);
    (void)std::getchar();
}
