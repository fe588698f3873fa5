// Holds memory until its input ends; `cargo xtask prefix` compares the figures.
#include <cstdio>
#include <ttmem.hpp>
#include <utility>

namespace {

bool failed = false;

void check(ttmem::Result result, const char* what) {
    if (!result) {
        std::fprintf(stderr, "%s: %s\n", what, result.text());
        failed = true;
    }
}

}  // namespace

int main() {
    using Client = ttmem::AllocationClient;
    if (!Client::is_enabled()) {
        std::fprintf(stderr, "tracking is off\n");
        return 1;
    }
    const std::int32_t mesh[] = {0, 1};
    check(Client::report_allocation(mesh, 2u << 20, ttmem::BufferType::dram, 0x1000), "weights");
    check(Client::report_allocation(1, 8192, ttmem::BufferType::l1, 0x2000), "activations");
    check(Client::report_cb_allocation(1, 4096, 0x3000), "circular buffer");
    {
        ttmem::Allocation first(1, 1024, ttmem::BufferType::l1, 0x8000);
        ttmem::Allocation moved = std::move(first);
        check(moved.result(), "scoped");
    }

    std::puts("holding");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }

    check(Client::report_cb_deallocation(1, 4096, 0x3000), "end of circular buffer");
    check(Client::report_deallocation(mesh, 0x1000), "free of weights");
    check(Client::report_deallocation(1, 0x2000), "free of activations");
    check(ttmem::close(), "close");
    return failed ? 1 : 0;
}
