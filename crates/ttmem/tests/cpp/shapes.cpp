// The wrappers, with invented types: arguments and results are forwarded, and names in the types' namespace do not interfere.
#include <ttmem/instrumented.hpp>

#include <array>
#include <memory>
#include <string>
#include <type_traits>

#include "harness.hpp"

namespace greedy {

// Accept anything, with names that the wrappers use, too: argument-dependent lookup must not find them.
template <class... Args>
int read_devices(Args&&...) = delete;
template <class... Args>
int read_cores(Args&&...) = delete;
template <class... Args>
int read_configuration(Args&&...) = delete;
template <class... Args>
int identity_of(Args&&...) = delete;
template <class... Args>
int binary_bytes(Args&&...) = delete;
template <class... Args>
int publish(Args&&...) = delete;
template <class... Args>
int gather(Args&&...) = delete;
template <class... Args>
int natural(Args&&...) = delete;
template <class... Args>
int swallow(Args&&...) = delete;
template <class... Args>
int make_kernel(Args&&...) = delete;
template <class... Args>
int call_and_report(Args&&...) = delete;
template <class... Args>
int define_devices(Args&&...) = delete;

struct Core {
    unsigned x, y;
};
// With the members' old names.
struct Range {
    Core start, end;
};
struct Binary {
    std::vector<std::uint32_t> words;
    std::size_t size() const { return words.size(); }
    const std::uint32_t* data() const { return words.data(); }
};
struct Kernel {
    Binary compute_binary() const { return {std::vector<std::uint32_t>(100)}; }
    std::string data_movement_binary() const { return std::string(24, 'x'); }
};
struct Sized {
    long binary_size() const { return 777; }
};
struct Chip {
    int number;
    // Not const, and with another type.
    unsigned short id() { return static_cast<unsigned short>(number); }
};
struct Mesh {
    std::vector<std::unique_ptr<Chip>> chips;
    const std::vector<std::unique_ptr<Chip>>& get_devices() const { return chips; }
};
struct Tiles {
    int num_tiles = 8;
    int tile_size = 2048;
};
struct Pages {
    unsigned num_pages() const { return 3; }
    unsigned page_size() const { return 1000; }
    std::uint32_t globally_allocated_address = 0x5000;
};
struct Total {
    std::uint64_t total_size = 640;
};

// Has its own number, its device, and the size of its kernels.
struct Program {
    int number;
    Chip* chip;
    unsigned bins = 100;
    int get_id() const { return number; }
    Chip* device() const { return chip; }
    unsigned get_kernel_bins_size() const { return bins; }

    std::shared_ptr<Kernel> add_kernel(std::unique_ptr<int> moved, const Range&) {
        CHECK(*moved == 5);
        return std::make_shared<Kernel>();
    }
    Sized add_kernel(const Core&) { return {}; }
    int add_kernel(std::unique_ptr<Kernel> kernel, const std::array<Core, 3>&) { return kernel ? 1 : 0; }
    int add_kernel(unsigned bytes, const Range&) {
        bins += bytes;
        return 9;
    }
    void add_kernel() {}
};

// Has only a number, which is no device's.
struct Bare {
    int number;
    int id() const { return number; }
    int add_kernel(const Core&) { return 1; }
};

struct Immovable {
    Immovable() = default;
    Immovable(const Immovable&) = delete;
};
inline Immovable the_one;

inline Immovable& CreateCircularBuffer(Program&, const Range&, const Tiles&) { return the_one; }
inline Immovable&& CreateCircularBuffer(Program&, const Range&, Pages&&) { return static_cast<Immovable&&>(the_one); }
inline void CreateCircularBuffer(Program&, std::unique_ptr<Total>) {}
inline int CreateCircularBuffer(const Bare&, const Range&, const Total&) { return 3; }
inline int CreateCircularBuffer(Chip*, const Range&, const Total&) { return 4; }
inline std::unique_ptr<int> CreateCircularBuffer(const std::shared_ptr<Mesh>&, int, const Total*) {
    return std::make_unique<int>(6);
}

}  // namespace greedy

using namespace greedy;
using ttmem::instrumented::AddKernelWithTracking;
using ttmem::instrumented::counts;
using ttmem::instrumented::CreateCircularBufferWithTracking;
using ttmem::instrumented::ForgetProgram;
using ttmem::instrumented::OnDevice;
using ttmem::instrumented::ProgramScope;

int main() {
    Chip chip{6};
    Program program{41, &chip};
    const Range row{{0, 0}, {3, 0}};

    static_assert(std::is_same_v<decltype(CreateCircularBufferWithTracking(program, row, Tiles{})), Immovable&>);
    static_assert(std::is_same_v<decltype(CreateCircularBufferWithTracking(program, row, Pages{})), Immovable&&>);
    static_assert(std::is_void_v<decltype(CreateCircularBufferWithTracking(program, std::unique_ptr<Total>()))>);
    static_assert(std::is_same_v<decltype(AddKernelWithTracking(program, Core{})), Sized>);

    CHECK(&CreateCircularBufferWithTracking(program, row, Tiles{}) == &the_one);
    Immovable&& same = CreateCircularBufferWithTracking(program, row, Pages{});
    CHECK(&same == &the_one);
    CreateCircularBufferWithTracking(program, std::make_unique<Total>());
    stop("configurations");

    // A copy with the same number is the same program.
    Program copy = program;
    ForgetProgram(copy);
    stop("forgotten by number");

    CHECK(AddKernelWithTracking(program, std::make_unique<int>(5), row)->compute_binary().size() == 100);
    CHECK(AddKernelWithTracking(program, Core{1, 1}).binary_size() == 777);
    CHECK(AddKernelWithTracking(program, std::make_unique<Kernel>(), std::array<Core, 3>{{{0, 0}, {1, 0}, {5, 5}}}) == 1);
    CHECK(AddKernelWithTracking(program, 300u, row) == 9);
    AddKernelWithTracking(program);
    stop("kernels");
    ForgetProgram(program);

    auto mesh = std::make_shared<Mesh>();
    mesh->chips.push_back(std::make_unique<Chip>(Chip{8}));
    mesh->chips.push_back(std::make_unique<Chip>(Chip{9}));
    const Total total{5000};
    {
        const ProgramScope owner(program);
        CHECK(*CreateCircularBufferWithTracking(mesh, 0, &total) == 6);
        stop("mesh by its devices");
    }
    stop("nothing");
    // Without a program it stays allocated.
    CHECK(*CreateCircularBufferWithTracking(mesh, 0, &total) == 6);
    stop("of no program");
    CHECK(counts().failed == 0 && counts().without_device == 0 && counts().tracked == 10);

    for (int number = 100; number < 150; ++number) {
        Bare bare{number};
        CHECK(CreateCircularBufferWithTracking(bare, row, total) == 3);
        CHECK(AddKernelWithTracking(bare, Core{1, 1}) == 1);
    }
    CHECK(counts().tracked == 10 && counts().without_device == 100);
    Bare bare{200};
    const Bare& unchanging = bare;
    {
        const OnDevice scope(chip);
        CHECK(CreateCircularBufferWithTracking(unchanging, row, total) == 3);
        CHECK(AddKernelWithTracking(bare, Core{1, 1}) == 1);
    }
    CHECK(CreateCircularBufferWithTracking(&chip, row, total) == 4);
    stop("a number alone");
    ForgetProgram(bare);
    stop("a number alone forgotten");
    CHECK(counts().failed == 0 && counts().without_device == 100 && counts().tracked == 13);
}
